"""Chinese for what rules and policies say in English: every sentence they can write has one."""

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_alignments import calibrated, classic, fixed

from reprod_log import Alignment
from reprod_log.messages.phrases import phrases, phrases_from
from reprod_log.report import render_report

SOURCE = Path(__file__).parents[2] / "src" / "reprod_log"
WRITERS = (
    SOURCE / "measure" / "dtypes.py",
    SOURCE / "experiments" / "passes.py",
)
PIECES = {
    # Parts of a sentence, or words that are put into one.
    "suspicious pass", "fixed limits", "X in the X", "X in the X (X)", "X; X", "X (X)", "X·x X",
    "X: X", "X X", "(X): X", " per channel", " in X", "of X", "of model", "raw of X", "raw of model", "C++ Traceback",
    # What is being done, said while it is done.
    "reference again, other seed", "X as it runs", "X in float64", "X's layers one by one",
    "X with the reference's gradients", "X (X) could not be run aloneX: X",
    "the weight is", "the weight X is", "all weights are", "are swapped", "was given twice", "the weights X and X X",
    "weight decay is applied to X", "weight decay is applied to all parameters", ", more than",
    " in the candidate only", " in the candidate only (biases and norms)", " (X there)",
    "Xin the candidate: X(…, X=X) for X",
    "X has a learning rate of their own on one side: the update is the reference's times a constant",
    "X have a learning rate of its own on one side: the update is the reference's times a constant",
    "; near names there: X", "in the X", " at X", "; worstX: reference X, candidate X", "; X of elements beyond X",
    "; 5 of elements beyond X", "; X of X elements beyond X",
    "reference X NaN, X Inf; candidate X NaN, X Inf", "X: X NaN, X infinite", "compared in X", "X against X",
    "X against X, X", "compared as exact integers", "compared as exact integer against float",
    " (the reverse: a transposed weight or gradient?)",
    # Put into sentences about ranks.
    "its gradients are", "of X of X parameters its gradients are", "; after the first step X parameters differ: X",
    "; after the first step 1 parameter differs: X", "of X of 1 parameter its gradients are",
    "; first at X: X", "X of X values not equalX",
    "rank 0's", "rank 0:", "X, ranks 1 to X", "ranks, ranks 1 to X", ", or declare the dims of those that are split",
    "rank X misses the all-reduce in step X: X those that it computed itself", "dims say", "a mesh says",
    "rank X: X", " and X more",
    "rank X misses the all-reduce along X in step X: X those that it computed itself", "see them with `reprod ranks`X",
    "the hash of all parameters and buffers when recording began is another oneX",
}  # fmt: skip
"""What a scan of the sources finds that is never a whole sentence."""
ERRORS = re.compile(r"^(a limit must be|cannot read the limit|no report format)")


def variants(node: ast.expr) -> Iterator[str]:
    """The texts an expression can give, X for what is only known when it runs; nothing if it is no text."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.IfExp):
        yield from itertools.chain(variants(node.body), variants(node.orelse))
    elif isinstance(node, ast.JoinedStr):
        parts = [list(variants(one)) or [""] for one in node.values]
        yield from ("".join(chosen) for chosen in itertools.product(*parts))
    elif isinstance(node, ast.FormattedValue):
        found = list(variants(node.value))
        yield from found if found else (["5"] if node.format_spec or "len(" in ast.unparse(node.value) else ["X"])
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = list(variants(node.left)), list(variants(node.right))
        if left or right:
            yield from ("".join(chosen) for chosen in itertools.product(left or ["X"], right or ["X"]))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "counted":
        one, *many = (str(part.value) for part in node.args[1:] if isinstance(part, ast.Constant))
        for text, number in ((one, "1"), (many[0] if many else f"{one}s", "5")):
            yield text.replace("#", number) if "#" in text else f"{number} {text}"
    elif isinstance(node, ast.BoolOp):
        yield "X"
        yield from variants(node.values[-1])


def sentences(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr) or id(node) in skipped:
            continue
        found = [text for text in variants(node) if " " in text.strip()]
        if found:
            skipped |= {id(part) for part in ast.walk(node)}
            yield from found


def known(text: str) -> bool:
    normal = re.sub(r"\b5\b", "X", text)
    tried = (text, normal, text.replace("X", "5"))
    return normal in PIECES or bool(ERRORS.match(text)) or any(phrases("zh").find(one) for one in tried)


@pytest.mark.parametrize("path", WRITERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_sentence_has_its_chinese(path: Path) -> None:
    missing = [text for text in dict.fromkeys(sentences(path)) if not known(text)]
    assert not missing, f"add these to messages/phrase_tables/zh.json (or say that they are pieces): {missing}"


ENGLISH = re.compile(r"(?:\b[a-z]+ ){3}[a-z]+\b")


@pytest.mark.parametrize("format", ["text", "markdown", "junit"])
@pytest.mark.parametrize("made", [calibrated, classic, fixed], ids=lambda made: made.__name__)
def test_chinese_report_has_no_english_sentence(made: Callable[[], Alignment], format: str) -> None:
    shown = render_report(made(), format=format, language="zh", full=True)
    shown = re.sub(r"python train_\w+\.py", "", shown)
    assert not ENGLISH.findall(shown)
    assert ENGLISH.search(render_report(made(), format=format))


def test_places_are_filled_and_nested_sentences_said() -> None:
    told = phrases_from({"the {side:said} lacks {count:number} of {name}": "{side}缺少{name}的{count}", "left": "左"})
    assert told("the left lacks 3 of a of b") == "左缺少a of b的3"
    assert told.find("the left lacks x of a") is None
    assert told("left; left") == "左；左"
    assert told("left; other") == "left; other"


def test_long_hostile_text_costs_little() -> None:
    text = "some code" + " of differs: in the reference, and" * 50_000
    assert phrases("zh")(text) == text
