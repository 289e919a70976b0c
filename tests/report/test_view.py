"""What every report shows: rows, first screen, groups, curves, tree, facts."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from made_alignments import calibrated, classic, finding_of, fixed

from reprod_log import Alignment, Policy, Recording, Status, align
from reprod_log.diagnose.finding import Confidence
from reprod_log.measure.comparison import Compared
from reprod_log.messages import Name, message, words
from reprod_log.recording import Key, Provenance
from reprod_log.report.curves import Curve, curves
from reprod_log.report.facts import coverage, policy_rules, provenance_facts
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.groups import ModuleGroup, groups, heat_maps, module_tree
from reprod_log.report.html_data import entry_pages
from reprod_log.report.view import remarks, rows


def said(alignment: Alignment) -> list[str]:
    return [words()(one) for one in FirstScreen(alignment).advice]


def aligned(reference: dict[str, object], candidate: dict[str, object], **options: object) -> Alignment:
    found = align(Recording.from_arrays(reference), Recording.from_arrays(candidate), **options)  # type: ignore[arg-type]
    # What the rules say of such small things is theirs to test.
    return replace(found, findings=())


# First screen


def test_first_screen_names_the_first_divergence_and_the_last_agreement() -> None:
    screen = FirstScreen(fixed())
    assert not screen.passed
    assert screen.divergence is not None
    assert screen.divergence.key == "step0/forward/layer1.1.conv2#0:output"
    assert screen.last_agreement is not None
    assert screen.last_agreement.key == "step0/forward/layer1.1.bn1#0:output"


def test_first_screen_of_a_layer_wrong_by_itself_says_so() -> None:
    assert "wrong on its own" in said(calibrated())[0]


def test_advice_of_findings_comes_before_general_advice() -> None:
    finding = finding_of("rule", "the weight is transposed", "cosine 1", "explained", "transpose it")
    assert said(replace(fixed(), findings=(finding,))) == ["transpose it"]


def test_causes_are_ranked_by_confidence() -> None:
    explained = finding_of("a", "first", "e", "explained")
    proven = finding_of("b", "second", "e", "proven")
    screen = FirstScreen(replace(fixed(), findings=(explained, proven)))
    assert [str(one.cause) for one in screen.causes] == ["second", "first"]


def test_a_hint_is_never_in_the_place_of_a_cause() -> None:
    hint = finding_of("a", "first", "e", "hint")
    screen = FirstScreen(replace(fixed(), findings=(hint,)))
    assert hint.kind == "hint"
    assert screen.causes == ()
    assert screen.cause, "no cause is known, and the report has to tell so"
    assert [str(one.cause) for one in screen.hints] == ["first"]
    assert "hint: first" in str(replace(fixed(), findings=(hint,)))


def test_only_the_surest_causes_are_on_the_first_screen_and_advice_is_not_repeated() -> None:
    rules = ("a", "a", "b", "c", "d")
    layers = ("n.1", "n.2", "n.3", "n.4", "n.5")
    causes = [message("cause.layer_setting", setting="eps", path=Name(one), ours="1", theirs="2") for one in layers]
    many = tuple(
        replace(finding_of(rule, "", "e", "explained", "the advice"), cause=cause)
        for rule, cause in zip(rules, causes, strict=True)
    )
    made = replace(fixed(), findings=many)
    screen = FirstScreen(made)
    assert [one.finding.cause for one in screen.shown_causes] == [causes[place] for place in (0, 2, 3)]
    assert [one.cause for one in screen.more_causes] == [causes[place] for place in (1, 4)]
    assert said(made) == ["the advice"]
    assert "2 more causes were found" in str(made)


def test_two_mistakes_of_one_rule_are_both_on_the_first_screen() -> None:
    two = [
        finding_of("a", cause, "e", "explained", keys=(Key("conv.weight"),))
        for cause in ("conv.weight is zero", "conv.weight is turned")
    ]
    screen = FirstScreen(replace(fixed(), findings=tuple(two)))
    assert [one.finding for one in screen.shown_causes] == two


def test_doubts_are_no_causes_and_weaken_the_verdict() -> None:
    odd = finding_of("a", "a constant", "e", kind="doubt")
    plain, doubted = fixed(wrong=False), replace(fixed(wrong=False), findings=(odd,))
    assert FirstScreen(doubted).causes == ()
    assert FirstScreen(doubted).doubts == (odd,)
    assert (FirstScreen(plain).certainty.level, FirstScreen(doubted).certainty.level) == ("fair", "weak")


@pytest.mark.parametrize(("confidence", "level"), [("proven", "fair"), ("explained", "weak")])
def test_doubt_weakens_a_failure_unless_the_cause_is_proven(confidence: Confidence, level: str) -> None:
    doubt, cause = finding_of("a", "the map may be wrong", kind="doubt"), finding_of("b", "eps", "e", confidence)
    wrong = calibrated(wrong=True)
    assert FirstScreen(replace(wrong, findings=())).certainty.level == "strong"
    assert FirstScreen(replace(wrong, findings=(doubt, cause))).certainty.level == level


@pytest.mark.parametrize(
    ("alignment", "level"),
    [
        (calibrated(wrong=False), "strong"),
        (fixed(wrong=False), "fair"),
        (aligned({"x": np.ones(3)}, {"x": np.ones(3) * (1 + 5e-6)}), "weak"),
        (aligned({"x": np.ones(3)}, {"x": np.ones(3) * 2}), "fair"),
    ],
)
def test_certainty_follows_the_evidence(alignment: Alignment, level: str) -> None:
    assert FirstScreen(alignment).certainty.level == level


def test_incomplete_recording_weakens_the_verdict() -> None:
    whole = fixed(wrong=False)
    growing = replace(whole, candidate=replace(whole.candidate, complete=False))
    assert FirstScreen(growing).certainty.level == "weak"
    assert "candidate is incomplete" in words()(FirstScreen(growing).certainty.doubts[0])


def test_accepted_difference_passes_and_weakens_the_verdict() -> None:
    values = {"x": np.ones(3), "y": np.ones(3)}
    found = aligned(values, {**values, "y": np.zeros(3)}, policy=replace(Policy.fixed(), accept=("y",)))
    assert found.passed
    screen = FirstScreen(found)
    assert screen.certainty.level == "weak"
    assert [words()(one) for one in screen.certainty.doubts] == ["1 entry differs and was accepted by the policy"]
    assert "accepted although they differ: 'y'" in [words()(one) for one in remarks(found)]


def test_narrow_failure_of_a_fixed_limit_asks_for_a_noise_floor_and_a_wide_one_does_not() -> None:
    near = aligned({"x": np.ones(3)}, {"x": np.ones(3) * (1 + 5e-6)})
    far = aligned({"x": np.ones(3)}, {"x": np.ones(3) * 2})
    assert "record a float64 run" in said(near)[-1]
    assert not any("float64" in one for one in said(far))


def test_exact_kinds_are_never_called_rounding() -> None:
    assert not any("float64" in one for one in said(aligned({"x": np.array([1])}, {"x": np.array([2])})))


def test_nothing_in_common_advises_a_rename() -> None:
    screen = FirstScreen(aligned({"a": np.ones(1)}, {"b": np.ones(1)}))
    assert screen.status is Status.NOTHING
    assert "rename" in words()(screen.advice[0])


def test_missing_partner_alone_advises_a_rename() -> None:
    both = {"x": np.ones(1)}
    assert "--rename" in said(aligned({**both, "a": np.ones(1)}, both))[0]


@pytest.mark.parametrize("phase", ["data", "loss", "backward", "gradient", "clip", "lr", "update", "parameter"])
def test_every_phase_has_its_own_advice(phase: str) -> None:
    key = f"step0/{phase}/thing"
    advice = said(aligned({key: np.ones(2)}, {key: np.ones(2) * 3}))
    assert advice == [words().get(f"advice.{phase}").format(path="thing")]


def test_suspect_entries_are_in_the_headline_of_an_aligned_result() -> None:
    whole = calibrated(wrong=False)
    first, *rest = whole.verdict.judgements
    odd = replace(whole.verdict, status=Status.SUSPECT, judgements=(replace(first, status=Status.SUSPECT), *rest))
    text = words()(FirstScreen(replace(whole, verdict=odd)).headline)
    assert text == f"ALIGNED: all {len(rest) + 1} entries pass, 1 of them is worth a look"


# Rows


def test_row_carries_floor_own_and_float64_error_when_calibrated() -> None:
    by_key = {row.key: row for row in rows(calibrated())}
    wrong = by_key["step0/forward/layer1.1.conv2#0:output"]
    after = by_key["step0/forward/layer1.1.bn2#0:output"]
    assert wrong.relative_own == pytest.approx(0.02, rel=1e-3)
    assert wrong.relative_float64 == pytest.approx(0.02, rel=1e-3)
    assert wrong.relative_floor is not None
    assert 1e-8 < wrong.relative_floor < 1e-6
    assert after.relative_own == 0.0
    assert after.relative_float64 is not None
    assert after.relative_float64 > 1e-3
    assert wrong.times_floor is not None
    assert wrong.times_floor > 1e4


def test_row_without_calibration_has_no_floor() -> None:
    row = rows(fixed())[5]
    assert (row.floor, row.times_floor, row.relative_floor, row.relative_own) == (None, None, None, None)


def test_deciding_check_is_the_one_furthest_beyond_its_limit() -> None:
    found = aligned({"x": np.ones(4)}, {"x": np.full(4, 1.5)}, limits=["mean_abs:10", "max_abs:0.1", "rel_l2:0.4"])
    row = rows(found)[0]
    assert row.check is not None
    assert row.check.metric == "max_abs"
    assert row.times_limit == pytest.approx(5)


def test_nan_is_infinitely_beyond_its_limit() -> None:
    row = rows(aligned({"x": np.array([math.nan])}, {"x": np.array([math.nan])}))[0]
    assert row.times_limit == math.inf


# Groups


def test_groups_follow_time_and_show_their_worst_member() -> None:
    found = groups(rows(fixed(steps=2)))
    assert [(one.step, one.phase) for one in found] == [
        (step, phase) for step in (0, 1) for phase in ("data", "forward", "loss", "gradient", "lr", "parameter")
    ]
    assert found[1].status is Status.FAIL
    assert found[1].worst.key == "step0/forward/layer1.1.conv2#0:output"
    assert found[4].status is Status.PASS


def test_heat_maps_have_every_layer_at_every_step() -> None:
    maps = heat_maps(rows(fixed(steps=3)))
    assert [one.phase for one in maps] == ["forward", "gradient", "parameter"]
    forward, gradient, _ = maps
    assert forward.layers[:3] == ("conv1", "bn1", "layer1.0.conv1")
    assert gradient.layers[:3] == ("conv1.weight", "bn1.weight", "layer1.0.conv1.weight")
    assert gradient.steps == (0, 1, 2)
    assert len(gradient.layers) == 19
    assert len(gradient.cells) == 57
    assert gradient.cells["fc.weight", 2].key == "step2/gradient/fc.weight:raw"


def node(nodes: tuple[ModuleGroup, ...], *names: str) -> ModuleGroup:
    found = next(one for one in nodes if one.name == names[0])
    return node(found.children, *names[1:]) if len(names) > 1 else found


def test_tree_gives_every_module_its_worst_status() -> None:
    tree = module_tree(rows(fixed(steps=1)))
    assert [one.name for one in tree] == ["(data)", "conv1", "bn1", "layer1", "layer2", "fc", "(loss)", "(lr)"]
    assert node(tree, "layer1").status is Status.FAIL
    assert node(tree, "layer1", "0", "conv1").counts == Counter({Status.FAIL: 1, Status.PASS: 2})
    assert node(tree, "layer1").worst.key == "step0/forward/layer1.1.conv2#0:output"
    assert node(tree, "layer1", "0", "conv1", "weight").path == "layer1.0.conv1.weight"
    assert node(tree, "(lr)").status is Status.PASS


def test_tree_counts_every_row_once() -> None:
    found = rows(fixed())
    assert sum(sum(one.counts.values()) for one in module_tree(found)) == len(found)


# Curves


def by_name(alignment: Alignment) -> dict[str, Curve]:
    return {curve.name: curve for curve in curves(rows(alignment))}


def test_structured_keys_become_curves_over_steps() -> None:
    found = by_name(fixed(steps=4))
    assert list(found) == ["loss", "group0"]
    loss = found["loss"]
    assert (loss.kind, [point.step for point in loss.points]) == ("loss", [0, 1, 2, 3])
    assert loss.points[1].reference == pytest.approx(2.4 * 0.8)
    assert loss.points[1].limit == 2e-6
    assert found["group0"].kind == "lr"
    assert found["group0"].identical


def test_classic_names_become_curves_by_the_number_that_varies() -> None:
    found = by_name(classic())
    assert {name: (curve.kind, len(curve.points)) for name, curve in found.items()} == {
        "loss_*": ("loss", 12),
        "step_*_linear_lr": ("lr", 5),
    }
    assert [point.step for point in found["step_*_linear_lr"].points] == [0, 100, 200, 300, 400]
    assert [point.step for point in found["loss_*"].points] == list(range(12))
    assert found["loss_*"].points[7].difference == pytest.approx(3e-5)


def test_of_two_numbers_in_a_name_the_varying_one_is_the_step() -> None:
    values = {f"top5_acc_{step}": np.array(float(step)) for step in range(3)}
    values |= {f"G{part}_loss_{step}": np.array(1.0) for part in (1, 2) for step in range(3)}
    found = by_name(aligned(values, values))
    assert {name: len(curve.points) for name, curve in found.items()} == {
        "G1_loss_*": 3,
        "G2_loss_*": 3,
        "top5_acc_*": 3,
    }


def test_one_step_or_an_array_is_no_curve() -> None:
    values = {"loss_0": np.array(1.0), "logits_0": np.ones(4), "logits_1": np.ones(4)}
    assert curves(rows(aligned(values, values))) == ()


def test_nan_in_a_curve_stays_a_gap() -> None:
    reference = {f"loss_{step}": np.array(1.0) for step in range(3)}
    candidate = {**reference, "loss_1": np.array(math.nan)}
    points = curves(rows(aligned(reference, candidate)))[0].points
    assert [math.isnan(point.candidate) for point in points] == [False, True, False]


def test_calibrated_curve_has_a_noise_band() -> None:
    loss = by_name(calibrated())["loss"]
    assert all(point.floor is not None and 0 < point.floor < 1e-5 for point in loss.points)


# Facts


def test_provenance_marks_what_matters() -> None:
    facts = {fact.name: fact for fact in provenance_facts(fixed())}
    assert facts["framework"].differs
    assert not facts["framework"].matters
    assert facts["threads"].matters
    assert not facts["seeds"].differs


def test_seeds_and_weights_matter_only_within_one_framework() -> None:
    def facts(*frameworks: str) -> dict[str, bool]:
        sides = [
            Recording.from_arrays({"x": np.ones(1)}, provenance=Provenance(framework=name, weights_hash=str(place)))
            for place, name in enumerate(frameworks)
        ]
        return {fact.name: fact.matters for fact in provenance_facts(align(sides[0], sides[1]))}

    assert facts("torch", "torch")["weights_hash"]
    assert not facts("torch", "paddle")["weights_hash"]


def test_provenance_known_to_one_side_only_is_shown_but_does_not_matter() -> None:
    reference = Recording.from_arrays({"x": np.ones(1)}, provenance=Provenance(device="cpu", extra={"note": "hi"}))
    facts = {fact.name: fact for fact in provenance_facts(align(reference, Recording.from_arrays({"x": np.ones(1)})))}
    assert (facts["device"].reference, facts["device"].candidate, facts["device"].matters) == ("cpu", "", False)
    assert facts["note"].reference == "hi"


def test_coverage_counts_what_was_compared_and_what_not() -> None:
    found = classic()
    seen = coverage(found, rows(found))
    assert (seen.judged, seen.compared, seen.elements) == (19, 17, 17)
    assert (seen.only_in_reference, seen.only_in_candidate) == (("logits",), ("logit",))
    assert seen.matched == (("name", 17),)
    allowed = aligned({"x": np.ones(1), "y": np.ones(1)}, {"x": np.ones(1)}, allow_unmatched=["y"])
    assert coverage(allowed, rows(allowed)).allowed == ("y",)
    assert coverage(allowed, rows(allowed)).only_in_reference == ()


def test_coverage_tells_evidence_from_judged_entries() -> None:
    found = calibrated()
    seen = coverage(found, rows(found))
    assert (seen.judged, seen.supporting) == (139, 139)
    assert seen.steps == (0, 1)


def test_policy_is_shown_line_by_line() -> None:
    assert ("mean_abs", "≤ 2e-06") in [(rule.name, rule.value) for rule in policy_rules(fixed())]
    assert ("free", "10") in [(rule.name, rule.value) for rule in policy_rules(calibrated())]


def test_pairs_found_by_order_are_no_doubt_when_values_prove_them() -> None:
    def doubts(rows: tuple[Compared, ...]) -> list[str]:
        made = fixed(wrong=False)
        made = replace(made, comparison=replace(made.comparison, rows=rows))
        return [words()(one) for one in FirstScreen(made).certainty.doubts]

    by_order = tuple(row._replace(how="order", confidence=0.8) for row in fixed(wrong=False).comparison.rows)
    assert doubts(by_order) == []
    layer = "layer1.1.conv2"
    unproven = tuple(
        row._replace(measurement=row.measurement._replace(rel_l2=0.5))
        if layer in row.key.path and row.measurement
        else row
        for row in by_order
    )
    count = sum(layer in row.key.path for row in by_order)
    assert doubts(unproven) == [
        f"{count} pairs were matched by the order of execution and may be wrong (the least sure: 80%)"
    ]


def test_samples_of_the_page_keep_the_digits_in_which_the_two_sides_differ() -> None:
    made = align(
        Recording.from_arrays({"y": np.linspace(1, 2, 20).astype(np.float32)}),
        Recording.from_arrays({"y": np.linspace(1, 2, 20).astype(np.float32) * np.float32(1 + 2e-7)}),
    )
    shown = entry_pages(made, rows(made))["details"][0]["samples"]
    differences = [abs(b - a) for a, b in zip(shown[::2], shown[1::2], strict=True)]
    assert len(differences) == 20
    assert all(1e-7 < one < 5e-7 for one in differences)


def test_every_evidence_of_the_calibrated_rule_has_its_words() -> None:
    """What is compared exactly is no reason to call a verdict weak."""
    made = calibrated(wrong=False)
    exact = tuple(replace(one, evidence="exact kind") for one in made.verdict.judgements[:3])
    judged = replace(made.verdict, judgements=(*exact, *made.verdict.judgements[3:]))
    found = FirstScreen(replace(made, verdict=judged)).certainty
    assert found.level == FirstScreen(made).certainty.level == "strong"
    assert any("compared exactly" in words()(one) for one in found.grounds)


def test_cause_is_not_shown_when_a_looser_policy_lets_everything_pass() -> None:
    wrong = fixed()
    cause = finding_of("made_up", "fc has no bias", "the difference is 0.5", "explained", "add bias=True", (Key("fc"),))
    found = replace(wrong, findings=(cause,))
    assert FirstScreen(found).causes == (cause,)
    loose = found.judged_by(Policy.fixed(["max_abs:inf"], allow_unmatched=["*"], allow_unproven=True))
    assert loose.passed
    assert FirstScreen(loose).causes == ()
    assert "add bias" not in " ".join(
        words()(one) if not isinstance(one, str) else one for one in FirstScreen(loose).advice
    )
    assert FirstScreen(loose.judged_by(wrong.policy)).causes == (cause,)
