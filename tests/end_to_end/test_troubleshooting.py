"""docs/troubleshooting.md shows errors in the words in which reput prints them."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.pages import ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
#: The texts of the first column of each table.
TEXTS = [
    text
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for text in re.findall("`([^`]+)`", line.split(" | ")[0])
]
#: Texts of others, and whose they are.
OTHERS = {
    "No matching distribution found for reput": "pip's",
    "requires a different Python": "pip's",
    "No module named 'fcntl'": "Python's",
    "Cannot allocate memory": "Linux's",
    "cannot schedule new futures after interpreter shutdown": "Python's",
    "can't register atexit after shutdown": "Python's",
}
#: Stands for a value in a text of the sources.
VALUE = "\0"


@cache
def literals() -> list[str]:
    """The texts in the sources that may be printed, each value of an f-string or of a format as VALUE."""
    found: set[str] = set()
    for path in (ROOT / "src/reput").rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (one.value if isinstance(one, ast.Constant) else VALUE for one in node.values)
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.add(re.sub(r"%(\.\d+f|[a-z])", VALUE, node.value))
    return sorted(found)


def is_printed(text: str) -> bool:
    """Whether a text of the sources has all parts of this one, in their order; `...` stands for a value, or more."""
    parts = text.split("...")
    pattern = re.compile(".*".join(map(re.escape, parts)).strip(), re.DOTALL)
    longest = max(parts, key=len).strip()
    return any(longest in literal and pattern.search(literal) for literal in literals())


def test_each_text_of_the_page_is_one_of_the_sources() -> None:
    too_short_to_find_it = [text for text in TEXTS if len(text.replace("...", "")) < 10]
    assert too_short_to_find_it == []
    assert [text for text in TEXTS if not is_printed(text) and text not in OTHERS] == []


def test_the_page_has_all_texts_of_others_that_are_listed() -> None:
    assert [text for text in OTHERS if text not in TEXTS] == []


def test_a_text_that_has_changed_is_noticed() -> None:
    assert is_printed("there is no topic ...")
    assert not is_printed("there was no topic ...")
    assert not is_printed("Errors are for a caller's mistake"), "a docstring is not printed"
