"""The zoo's results as a page of Markdown."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version

from zoo.outcome import RULES, Outcome, named, placed
from zoo.pairs import TwoMistakes
from zoo.trial import Mistake


def summary(
    mistakes: Sequence[Outcome], healthy: Sequence[Outcome], known: Mapping[str, Mistake], errors: Sequence[str]
) -> str:
    mistakes = sorted(mistakes, key=lambda one: (one.name, one.seed))
    lines = [
        "# The zoo: planted mistakes and correct ports",
        "",
        f"Made by `make zoo` on {date.today()}: torch {version('torch')}, paddlepaddle {version('paddlepaddle')}, "
        f"numpy {version('numpy')}, Python {platform.python_version()}, CPU. "
        f"{len(mistakes)} runs of {len({one.name for one in mistakes})} planted mistakes, {len(healthy)} runs of "
        f"{len({one.name for one in healthy})} correct ports.",
        "",
        "All rules judge the same runs. *Found*: not passed. *Placed*: the first thing flagged is the layer, loss, "
        "gradient, parameter, buffer, rate or input where the mistake was planted.",
        "",
        "| rule | false alarms | found | placed |",
        "|---|---|---|---|",
    ]
    for rule in RULES:
        alarms = sum(bool(one.first[rule]) for one in healthy)
        found = sum(bool(one.first[rule]) for one in mistakes)
        right = sum(placed(known[one.name], one.first[rule]) for one in mistakes)
        lines.append(
            f"| {rule} | {_share(alarms, len(healthy))} | {_share(found, len(mistakes))} "
            f"| {_share(right, len(mistakes))} |"
        )
    blamed = [one for one in healthy if one.causes]
    lines += [
        "",
        "The two halves of the mistakes, by V and the diagnosis. Rules may be tuned on the development half; the "
        "scored half is only measured. A hash of the name decides (`Mistake.half` in tests/zoo/trial.py). The first "
        "100 mistakes had all been looked at before they were split.",
        "",
        *halves(mistakes, known),
    ]
    lines += [
        "",
        f"Causes named on correct ports: {len(blamed)} of {len(healthy)}.",
        "",
        "V: the calibrated rule; V32: the same without a float64 run of the candidate; fixed 1e-6: mean absolute "
        "difference of logits, losses and learning rates as reprod_log 1.0.1 checks them; assert_close: "
        "torch.testing.assert_close with its defaults on every tensor of the plain run.",
        "",
        "## Every mistake",
        "",
        "| mistake | half | seed | first place | placed | cause named | first cause shown |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in mistakes:
        mistake = known[one.name]
        cause = one.causes[0][2].replace("|", "\\|") if one.causes else ""
        lines.append(
            f"| {one.name} | {mistake.half} | {one.seed} | `{one.first['V'] or 'passes'}` "
            f"| {_yes(placed(mistake, one.first['V']))} | {_yes(named(mistake, one))} | {cause[:160]} |"
        )
    lines += ["", "## Alarms and causes on correct ports", ""]
    odd = [one for one in healthy if any(one.first.values()) or one.causes]
    for one in sorted(odd, key=lambda one: (one.name, one.seed)):
        alarms = ", ".join(f"{rule} at `{key}`" for rule, key in one.first.items() if key)
        lines.append(f"- {one.name}, seed {one.seed}: {alarms or 'no alarm'}{'; causes named' if one.causes else ''}")
    if errors:
        lines += ["", "## Could not be run", ""] + [
            f"- {text.splitlines()[0]}: {text.splitlines()[-1]}" for text in errors
        ]
    return "\n".join(lines) + "\n"


def halves(mistakes: Sequence[Outcome], known: Mapping[str, Mistake]) -> list[str]:
    """The totals of both halves. *Wrong*: causes are shown, and none of them is the right one."""
    lines = [
        "| half | mistakes | found | placed | cause named | wrong | as the first one shown | proven by running again |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for half in ("development", "scored", "both"):
        chosen = [one for one in mistakes if half in (known[one.name].half, "both")]
        counts = (
            sum(bool(one.first["V"]) for one in chosen),
            sum(placed(known[one.name], one.first["V"]) for one in chosen),
            sum(named(known[one.name], one) for one in chosen),
            sum(bool(one.causes) and not named(known[one.name], one) for one in chosen),
            sum(named(known[one.name], one, most=1) for one in chosen),
            sum(any(sure == "proven" for _, sure, _ in one.causes) for one in chosen),
        )
        shares = " | ".join(_share(count, len(chosen)) for count in counts)
        lines.append(f"| {half} | {len({one.name for one in chosen})} | {shares} |")
    return lines


def of_pairs(outcomes: Sequence[Outcome], known: Mapping[str, TwoMistakes]) -> str:
    """How often both of two mistakes were named. Only pairs of the development half are shown one by one."""
    lines = ["| half | pairs | both named | one named | further causes |", "|---|---|---|---|---|"]
    for half in ("development", "scored"):
        chosen = [one for one in outcomes if known[one.name].half == half]
        found = [(named(known[one.name].first, one), named(known[one.name].second, one)) for one in chosen]
        both, single = sum(all(pair) for pair in found), sum(any(pair) != all(pair) for pair in found)
        further = sum(bool(_further(known[one.name], one)) for one in chosen)
        shares = " | ".join(_share(count, len(chosen)) for count in (both, single, further))
        lines.append(f"| {half} | {len(chosen)} | {shares} |")
    for one in sorted(outcomes, key=lambda one: (one.name, one.seed)):
        pair = known[one.name]
        if pair.half == "development":
            said = [_yes(named(mistake, one)) for mistake in (pair.first, pair.second)]
            lines.append(f"- {one.name}: {', '.join(said)}; further: {_further(pair, one)}")
    return "\n".join(lines) + "\n"


def _further(pair: TwoMistakes, outcome: Outcome) -> list[str]:
    """Causes by rules that neither mistake is named by."""
    expected = {*pair.first.rules, *pair.second.rules, "operator"}
    return [f"{rule}: {text}" for rule, _, text in outcome.causes if rule not in expected]


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({part / whole:.1%})" if whole else "-"


def _yes(right: bool) -> str:
    return "yes" if right else "**no**"
