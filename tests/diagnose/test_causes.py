"""Rules on numbers alone: each names its cause, and stays silent on a pair without it."""

from collections.abc import Callable

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.diagnose.case import layer_states
from reprod_log.diagnose.fits import FUNCTIONS, function_between
from reprod_log.layers.settings import setting_differences
from reprod_log.recording import Key, ModuleInfo
from reprod_log.verdict import Judgement, Status

RNG = np.random.default_rng(0)


def causes(reference: dict[str, object], candidate: dict[str, object]) -> dict[str, str]:
    found = align(Recording.from_arrays(reference), Recording.from_arrays(candidate))
    return {one.rule: str(one.cause) for one in found.findings if one.kind == "cause"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[::-1], "another order"),
        (lambda x: x[:, ::-1], "channels"),
        (lambda x: (x - 0.5) / 0.25, "normalised again"),
    ],
)
def test_what_was_done_to_the_data_is_named(change: object, words: str) -> None:
    data = RNG.normal(size=(4, 3, 5, 5))
    found = causes({"step0/data/x:input": data}, {"step0/data/x:input": change(data)})  # type: ignore[operator]
    assert words in found["data"]


def test_data_that_are_simply_others_have_no_cause() -> None:
    ours, theirs = RNG.normal(size=(2, 4, 3, 5))
    found = align(
        Recording.from_arrays({"step0/data/x:input": ours}), Recording.from_arrays({"step0/data/x:input": theirs})
    )
    assert {one.kind for one in found.findings if one.rule == "data"} == {"hint"}


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (lambda given, made: given, "the reference passes on the output of norm, the candidate the input of norm"),
        (lambda given, made: made + given, "the reference does not add the input of norm"),
    ],
)
def test_tensor_that_the_code_between_layers_takes_is_named(
    passed: Callable[[np.ndarray, np.ndarray], np.ndarray], words: str
) -> None:
    given, made = RNG.normal(size=(2, 6, 5))
    ours = {"step0/forward/norm#0:input.0": given, "step0/forward/norm#0:output": made}
    others = {f"step0/forward/expert{place}#0:output": RNG.normal(size=(6, 5)) for place in range(9)}
    ours |= {**others, "step0/forward/gate#0:input.0": made}
    assert words in causes(ours, {**ours, "step0/forward/gate#0:input.0": passed(given, made)})["between_layers"]


def test_padding_on_the_other_side_is_named() -> None:
    rows = [[7, 8, 9, 0, 0], [5, 6, 0, 0, 0], [1, 2, 3, 4, 5]]
    left = [[0, 0, 7, 8, 9], [0, 0, 0, 5, 6], [1, 2, 3, 4, 5]]
    found = causes({"step0/data/ids:input": np.array(rows)}, {"step0/data/ids:input": np.array(left)})
    assert "padding on the other side" in found["data"]


def test_batch_of_another_step_is_named() -> None:
    batches = RNG.normal(size=(3, 4, 5))
    ours = {f"step{i}/data/x:input": batch for i, batch in enumerate(batches)}
    theirs = {f"step{i}/data/x:input": batches[i - 1 if i == 2 else i] for i in range(3)}
    assert "batch of step 1" in causes(ours, theirs)["data"]


def weights(change: object) -> str:
    names = ("a.weight", "b.weight", "c.weight")
    ours = {f"step0/parameter/{name}": RNG.normal(size=(4, 4)).astype(np.float32) for name in names}
    theirs = dict(ours)
    theirs["step0/parameter/a.weight"] = change(ours["step0/parameter/a.weight"])  # type: ignore[operator]
    return causes(ours, theirs)["weights"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.T.copy(), "transposed"),
        (lambda w: w.astype(np.float16).astype(np.float32), "float16"),
        (lambda w: w * 3, "3 times"),
        (lambda w: w[[1, 0, 2, 3]], "permuted along axis 0"),
        (lambda w: np.zeros_like(w), "zero"),
        (lambda w: RNG.normal(size=w.shape).astype(np.float32), "not loaded"),
    ],
)
def test_what_was_done_to_a_weight_is_named(change: object, words: str) -> None:
    assert words in weights(change)


def _two_parts(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> list[str]:
    names = [f"step0/parameter/layers.{part}.{kind}" for part in (0, 1, 2) for kind in ("weight", "bias", "scale")]
    ours = {name: RNG.normal(size=4).astype(np.float32) for name in names}
    found = align(Recording.from_arrays(ours), Recording.from_arrays(change(ours))).findings
    return [str(one.cause) for one in found if one.rule == "weights"]


def _of_part(arrays: dict[str, np.ndarray], source: dict[int, int]) -> dict[str, np.ndarray]:
    words = {name: name.split(".") for name in arrays}
    return {name: arrays[f"{first}.{source[int(part)]}.{kind}"] for name, (first, part, kind) in words.items()}


def test_part_that_holds_the_values_of_another_is_said_once() -> None:
    found = _two_parts(lambda arrays: _of_part(arrays, {0: 1, 1: 1, 2: 2}))
    assert found == ["the weights of layers.0 in the candidate hold the values of layers.1"]


def test_swapped_parts_are_said_once() -> None:
    found = _two_parts(lambda arrays: _of_part(arrays, {0: 1, 1: 0, 2: 2}))
    assert found == ["the weights of layers.0 and layers.1 are swapped in the candidate"]


def test_swapped_weights_are_named_once() -> None:
    one, two, three = RNG.normal(size=(3, 4, 4))
    names = ("step0/parameter/q.weight", "step0/parameter/k.weight", "step0/parameter/v.weight")
    found = align(
        Recording.from_arrays(dict(zip(names, (one, two, three), strict=True))),
        Recording.from_arrays(dict(zip(names, (two, one, three), strict=True))),
    )
    swapped = [str(finding.cause) for finding in found.findings if finding.rule == "weights"]
    assert swapped == ["the weights q.weight and k.weight are swapped"]


def test_equal_weights_and_data_have_no_cause() -> None:
    same = {"step0/data/x:input": RNG.normal(size=(4, 3)), "step0/parameter/a.weight": RNG.normal(size=(4, 4))}
    assert causes(same, same) == {}


def test_origin_of_nan_is_the_first_entry_that_has_one() -> None:
    ours = {f"step0/forward/{name}#0:output": RNG.normal(size=6) for name in "abc"}
    theirs = dict(ours)
    for name in "bc":
        theirs[f"step0/forward/{name}#0:output"] = np.full(6, np.nan)
    found = causes(ours, theirs)["not_finite"]
    assert "step0/forward/b#0:output" in found
    assert "candidate" in found


def test_gradient_sums_are_named_as_not_cleared() -> None:
    first, second = RNG.normal(size=(2, 5))
    ours = {"step0/gradient/w:raw": first, "step1/gradient/w:raw": second}
    theirs = {"step0/gradient/w:raw": first, "step1/gradient/w:raw": first + second}
    assert "not cleared" in causes(ours, theirs)["gradients_kept"]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_recognised_by_its_values(name: str) -> None:
    given = RNG.normal(size=200) * 3
    assert function_between(given, FUNCTIONS[name](given), near=1e-9) == name


def test_unknown_function_is_not_guessed() -> None:
    given = RNG.normal(size=200)
    assert function_between(given, np.cos(given), near=1e-9) is None


def module(origin: str, kind: str, **settings: object) -> ModuleInfo:
    return ModuleInfo("m", origin.rpartition(".")[2], kind, origin=origin, settings=settings)


def test_same_settings_in_other_words_do_not_differ() -> None:
    pairs = [
        (module("torch.nn.BatchNorm2d", "batchnorm", eps=1e-5, momentum=0.1),
         module("paddle.nn.BatchNorm2D", "batchnorm", epsilon=1e-5, momentum=0.9)),
        (module("torch.nn.AvgPool2d", "avgpool2d", kernel_size=3, padding=1, count_include_pad=True),
         module("paddle.nn.AvgPool2D", "avgpool2d", ksize=3, padding=1, exclusive=False)),
        (module("torch.nn.GELU", "gelu", approximate="none"), module("paddle.nn.GELU", "gelu", approximate=False)),
        (module("torch.nn.Conv2d", "conv2d", padding=[1, 1], stride=[2, 2]),
         module("paddle.nn.Conv2D", "conv2d", padding=1, stride=[2, 2])),
        (module("torch.nn.Embedding", "embedding"), module("paddle.nn.Embedding", "embedding")),
    ]  # fmt: skip
    assert [setting_differences(*pair) for pair in pairs] == [[]] * len(pairs)


def test_setting_that_differs_is_given_in_the_candidates_convention() -> None:
    ours = module("torch.nn.BatchNorm2d", "batchnorm", eps=1e-5, momentum=0.1)
    theirs = module("paddle.nn.BatchNorm2D", "batchnorm", epsilon=1e-5, momentum=0.1)
    (found,) = setting_differences(ours, theirs)
    assert (found.name, found.native, found.right) == ("momentum", "momentum", 0.9)


def test_own_inherited_and_glue_errors_are_told_apart() -> None:
    def judged(key: str, passed: bool) -> Judgement:
        return Judgement(Key.parse(key), Status.PASS if passed else Status.FAIL)

    states = layer_states(
        [
            judged("isolated@step0/forward/block.a#0:output", True),
            judged("isolated@step0/forward/block.b#0:output", False),
            judged("isolated@step0/forward/block#0:output", False),
            judged("isolated@step0/forward/glued.a#0:output", True),
            judged("isolated@step0/forward/glued#0:output", False),
            judged("isolated@step0/forward/last#0:output", True),
            judged("isolated@step0/gradient/last.weight:raw of last", True),
            judged("step0/forward/last#0:output", False),
        ]
    )
    assert states == {
        "block.a": "sound",
        "block.b": "own",
        "block": "inside",
        "glued.a": "sound",
        "glued": "glue",
        "last": "inherited",
    }
