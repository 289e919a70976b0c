"""Runs become repeatable, and everything is put back."""

import random

import numpy as np
import pytest
import torch

from reprod_log.capture.probing import deterministic
from reprod_log.frameworks import watchable


def draws(lab):
    return lab.draw(), np.random.rand(3).tobytes(), random.random()


def test_random_numbers_are_the_same_inside_two_blocks(lab):
    with deterministic(5):
        first = draws(lab)
    with deterministic(5):
        second = draws(lab)
    with deterministic(6):
        third = draws(lab)
    assert first == second
    assert first[0] != third[0]
    assert first[1] != third[1]


def test_random_numbers_go_on_as_without_the_block(lab):
    def sequence(interrupted):
        lab.seed(3)
        np.random.seed(3)
        random.seed(3)
        draws(lab)
        if interrupted:
            with pytest.raises(ZeroDivisionError), deterministic(9):
                draws(lab)
                raise ZeroDivisionError
        return draws(lab)

    assert sequence(True) == sequence(False)


def torch_switches():
    return {
        "deterministic": torch.get_deterministic_debug_mode(),
        "threads": torch.get_num_threads(),
        "benchmark": torch.backends.cudnn.benchmark,
    }


def test_switches_are_set_inside_and_put_back_after():
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    try:
        before = torch_switches()
        with deterministic():
            inside = torch_switches()
        after = torch_switches()
    finally:
        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = False
    assert before == after == {"deterministic": 0, "threads": 2, "benchmark": True}
    assert inside["deterministic"] > 0
    assert (inside["threads"], inside["benchmark"]) == (1, False)


def test_switches_say_what_must_be_set_before_the_program_starts(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    found = {(one.name, switch.name): switch for one in watchable() for switch in one.eager.switches()}
    for place in (("torch", "CUBLAS_WORKSPACE_CONFIG"), ("paddle", "OMP_NUM_THREADS")):
        switch = found[place]
        assert switch.read() not in switch.wanted
        assert switch.write is None
        assert "before the program starts" in switch.why
