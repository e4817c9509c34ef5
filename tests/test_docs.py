"""Pages that are made from the code: what is in them, and in which order."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from reput import MessageStore

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/pages.py"
#: What users read; formats and design are for those who build.
FOR_USERS = [
    ROOT / "README.md",
    *sorted(path for folder in ("docs", "docs/client", "docs/jobs") for path in (ROOT / folder).glob("*.md")),
]
#: A speed, or a comparison of speeds.
SPEED = re.compile(
    r"[0-9][0-9.,]* ?(k|M)? ?(msg|keys)/s|[0-9]+(\.[0-9]+)?( to [0-9.]+)? times (as|so) (fast|slow|many)"
)


def names(constant: str) -> list[str]:
    """The names in a list of docs/pages.py, which runs only within mkdocs."""
    for node in ast.parse(PAGES.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if name == constant:
                return text.split()
    raise AssertionError(f"{PAGES} has no {constant}")


def test_each_method_of_a_store_is_one_of_users_or_is_known_to_be_none() -> None:
    listed = names("METHODS") + names("INSIDE")
    assert len(listed) == len(set(listed))
    assert set(listed) == {name for name in dir(MessageStore) if not name.startswith("_")}


def test_methods_of_a_store_come_in_the_order_of_their_use() -> None:
    order = ["open", "put_message", "get_message", "query_message", "tail", "close"]
    assert [name for name in names("METHODS") if name in order] == order
    assert names("METHODS")[0] == "open"


def test_what_brokers_and_followers_take_is_not_among_a_users_methods() -> None:
    for name in names("METHODS"):
        text = getattr(MessageStore, name).__doc__
        assert text, name
        for words in ("for a broker", "an event loop", "of a master"):
            assert words not in text.partition("\n")[0], name


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_speed_stands_on_the_pages_of_figures_alone(page: Path) -> None:
    """Else two pages tell two values of it."""
    text = page.read_text()
    assert page.name == "figures.md" or not SPEED.search(text), f"{page}: link to docs/figures.md, or to lab's figures"


def test_pages_for_users_can_be_read() -> None:
    assert sum(len(page.read_text().split()) for page in FOR_USERS) <= 60_000


def test_each_page_of_the_lab_is_in_the_navigation_of_the_site() -> None:
    """`make docs` asks the same of all pages, and takes half a minute."""
    site = (ROOT / "mkdocs.yml").read_text()
    for page in sorted((ROOT / "lab").glob("*.md")):
        assert f": lab/{page.name}\n" in site, f"mkdocs.yml, nav: lab/{page.name} is missing"
