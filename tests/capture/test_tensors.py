"""Tensors of each framework become arrays that own their memory, with the framework's dtype."""

import sys

import ml_dtypes
import numpy as np
import paddle
import pytest
import torch

from reprod_log.errors import UsageError
from reprod_log.frameworks import is_loaded, owner_of_tensor
from reprod_log.frameworks.tensors import is_tensor, to_numpy
from reprod_log.recording import dtype_name

DTYPES = ("float16", "bfloat16", "float32", "float64", "uint8", "int32", "int64", "bool", "complex64", "float8_e4m3fn")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_values_are_kept_for_torch(dtype):
    tensor = torch.tensor([[0.0, 1.0, -2.0], [3.0, 0.5, 1.0]]).abs().to(getattr(torch, dtype))
    array = to_numpy(tensor)
    assert dtype_name(array.dtype) == dtype
    assert array.astype("complex64").tolist() == tensor.to(torch.complex64).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_values_are_kept_for_paddle(dtype):
    plain = np.array([[0.0, 1.0, 2.0], [3.0, 0.5, 1.0]], "float32")
    tensor = paddle.to_tensor(plain).astype(dtype)
    array = to_numpy(tensor)
    assert dtype_name(array.dtype) == dtype
    expected = plain.astype(array.dtype).astype("complex64")
    assert array.astype("complex64").tolist() == expected.tolist()


def test_copy_does_not_change_when_the_tensor_is_written_in_place():
    ours = torch.zeros(3)
    theirs = paddle.zeros([3])
    numpys = np.zeros(3)
    copies = [to_numpy(value) for value in (ours, theirs, numpys)]
    ours += 1
    theirs.add_(paddle.ones([3]))
    numpys += 1
    assert [copy.tolist() for copy in copies] == [[0, 0, 0]] * 3
    assert all(copy.flags.owndata for copy in copies)


def test_tensor_that_requires_grad_or_is_a_view_is_copied():
    matrix = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    assert to_numpy(matrix.T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert to_numpy(matrix.T).flags.c_contiguous
    assert to_numpy(matrix[:, 1]).tolist() == [1, 4]
    other = paddle.arange(6, dtype="float32").reshape([2, 3])
    other.stop_gradient = False
    assert to_numpy(other.T).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_unusual_layouts_are_made_dense():
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    assert to_numpy(dense.to_sparse()).tolist() == dense.tolist()
    assert to_numpy(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    assert to_numpy(paddle.to_tensor(dense.numpy()).to_sparse_coo(2)).tolist() == dense.tolist()


@pytest.mark.parametrize("make", [lambda: torch.zeros(0, 3), lambda: paddle.zeros([0, 3]), lambda: np.zeros((0, 3))])
def test_empty_tensor_keeps_its_shape(make):
    assert to_numpy(make()).shape == (0, 3)


def test_plain_python_values_are_taken():
    assert to_numpy(1.5) == 1.5
    assert to_numpy(True).dtype == bool
    assert to_numpy([1, 2]).tolist() == [1, 2]
    assert to_numpy([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1, 2]
    assert to_numpy((np.float32(1), 2)).tolist() == [1, 2]
    assert to_numpy(np.array(1, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": 1}, "builtins.dict"),
        (None, "NoneType"),
        ([[1, 2], [3]], "one by one"),
        ([object()], "builtins.object"),
        (torch.nn.Linear(1, 1), "not a tensor"),
        (torch.zeros(2, device="meta"), "meta device"),
    ],
)
def test_what_is_no_array_is_refused_by_name(value, said):
    with pytest.raises(UsageError, match=said):
        to_numpy(value)


def test_is_tensor_tells_arrays_from_other_things():
    assert is_tensor(torch.zeros(1))
    assert is_tensor(paddle.zeros([1]))
    assert is_tensor(np.float32(1))
    assert not is_tensor([1.0])
    assert not is_tensor(1.0)


def test_stand_in_that_only_borrows_the_name_is_not_taken_for_the_framework(monkeypatch):
    assert is_loaded("torch")
    monkeypatch.setitem(sys.modules, "torch", paddle)
    assert not is_loaded("torch")
    assert owner_of_tensor(paddle.zeros([1])) is not None
