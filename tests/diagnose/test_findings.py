"""Findings: merged by what they say and not by their words, saved with their messages, explained by others."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reprod_log.diagnose import Finding, Fix, finding, ranked
from reprod_log.diagnose.engine import SUPERSEDED, Supersedes, unexplained
from reprod_log.diagnose.hypotheses import HYPOTHESES
from reprod_log.messages import Foreign, Message, Name, Names, Number, message
from reprod_log.recording import Key


def setting(path: str, name: str = "eps", value: str = "1e-05") -> Finding:
    return Finding(
        "layer_setting",
        message("cause.layer_setting", setting=name, path=Name(path), ours=value, theirs="1e-06"),
        (message("evidence.layer_alone_differs"),),
        "explained",
        (message("advice.setting_in_candidate", call="LayerNorm(eps=1e-05)", path=Name(path)),),
        (Key(path, "forward", 0, 0, "output", "isolated"),),
        fixes=(Fix(path, {name: value}),),
    )


def test_one_mistake_in_many_layers_is_one_finding_that_names_them() -> None:
    (found,) = ranked([setting("a"), setting("b"), setting("c")])
    assert found.cause.arguments["path"] == Names(("a", "b", "c"))
    assert found.advice[0].arguments["path"] == Names(("a", "b", "c"))
    assert [fix.layer for fix in found.fixes] == ["a", "b", "c"]
    assert [key.path for key in found.keys] == ["a", "b", "c"]
    assert str(found.cause) == "eps of a, b, c differs: 1e-05 in the reference, 1e-06 in the candidate"


@pytest.mark.parametrize(
    "other",
    [setting("b", name="momentum"), setting("b", value="1e-03"), replace(setting("b"), confidence="hint"),
     replace(setting("b"), kind="remark"), replace(setting("b"), rule="other")],
)  # fmt: skip
def test_different_mistakes_stay_apart(other: Finding) -> None:
    assert len(ranked([setting("a"), other])) == 2


def test_names_inside_a_nested_message_are_merged_too() -> None:
    def average(path: str, source: str, share: float) -> Finding:
        law = message("word.takes_a_share", share=Number(share, ".4g"), source=Name(source))
        return Finding("a", message("cause.average_of_weights", path=Name(path), ours=law, theirs=law))

    # Shares that are written alike are the same share.
    (found,) = ranked([average("q.a", "p.a", 0.10000001), average("q.b", "p.b", 0.1)])
    assert "it takes 0.1 of p.a, p.b per step" in str(found.cause)
    assert len(ranked([average("q.a", "p.a", 0.1), average("q.b", "p.b", 0.2)])) == 2


def test_saved_finding_is_read_back_with_its_messages() -> None:
    found = setting("a")
    data = found.to_dict()
    assert data["cause"] == str(found.cause)
    assert data["messages"]["cause"]["id"] == "cause.layer_setting"
    assert Finding.from_dict(data) == found
    assert Finding.from_dict(data).sentences("zh")[0] == "a 的 eps 不同：参考侧 1e-05，候选侧 1e-06"


def test_sentences_of_the_first_edition_are_shown_as_they_are() -> None:
    old = {
        "rule": "layer_setting", "cause": "eps of 0 differs", "evidence": "", "confidence": "proven",
        "advice": "set it",
        "keys": ["0"], "kind": "cause", "mend": {"layer": "0", "settings": {"eps": 1}, "weights": False},
    }  # fmt: skip
    found = Finding.from_dict(old)
    assert found.cause == Message("text", {"text": Foreign("eps of 0 differs")})
    assert found.evidence == ()
    assert found.sentences("zh") == ("eps of 0 differs", "", "set it")
    assert found.fixes == (Fix("0", {"eps": 1}),)
    assert "messages" not in found.to_dict()


def test_finding_makes_only_those_superfluous_that_it_explains() -> None:
    proven = replace(setting("a"), confidence="proven")
    same = Finding("constant_factor", message("cause.of_side"), keys=(Key("a", "forward"),))
    elsewhere = replace(same, keys=(Key("b", "forward"),))
    edges = [Supersedes("layer_setting", ("constant_factor",), by="proven", same_layers=True)]
    assert unexplained([same, elsewhere, proven], edges) == [elsewhere, proven]
    assert unexplained([same, setting("a")], edges) == [same, setting("a")]
    assert unexplained([same, proven], [Supersedes("", ("constant_factor",), of="explained")]) == [same, proven]


def test_every_hypothesis_has_a_name_of_its_own() -> None:
    rules = [one.rule for one in HYPOTHESES]
    assert len(set(rules)) == len(rules)


def test_only_known_findings_are_superseded() -> None:
    table = json.loads(Path(finding.__file__).with_name("findings.json").read_text(encoding="utf-8"))
    known = {row["rule"] for row in table.values() if "rule" in row}
    assert {rule for edge in SUPERSEDED for rule in (edge.rule, *(edge.others or ())) if rule} <= known
