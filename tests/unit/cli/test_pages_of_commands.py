"""The page that `reput --help` names has every command; its words are explained once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from reput.cli.defaults import VARIABLES
from reput.cli.main import app
from tests.support.commands import run_reput

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/commands.md").read_text()
VERBS = PAGE.partition("## Exit status")[0]
#: Commands that change no store, and write none: they read one, or ask a broker, or write other files.
CHANGE_NO_STORE = """
audit backups config consume diff dump get info man namesrv produce query stats tail top warm
""".split()


def commands() -> set[str]:
    """The names of all commands: `audit`, `admin lag`."""
    found = set()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        found |= {f"{name} {one}" for one in below} if below else {name}
    return found


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of a page's tables, but for headings and rules."""
    lines = re.findall(r"^\| (.*) \|$", page, re.MULTILINE)
    return [line.split(" | ") for line in lines if not re.match(r"(command|to|word|status|file) \|", line)]


def words(path: str) -> list[str]:
    """The words that the glossary of a page explains."""
    text = (ROOT / path).read_text()
    glossary = text.partition("| word | means |\n")[2].partition("\n\n")[0]
    return [word for cells in rows(glossary) for word in cells[0].split(", ")]


def test_help_names_the_page() -> None:
    (named,) = re.findall(r"docs/\S+\.md", run_reput("--help").out)
    assert (ROOT / named).read_text() == PAGE


def test_the_promise_names_each_command_that_changes_a_store() -> None:
    promise = (ROOT / "docs/promises.md").read_text().partition("**A read changes nothing.**")[2].partition("\n- **")[0]
    named = {words.split()[0] for words in re.findall(r"`([a-z][a-z -]*)`", promise)}
    assert not named & set(CHANGE_NO_STORE)
    assert named | set(CHANGE_NO_STORE) == {name for name in commands() if not name.startswith("admin ")}


@pytest.mark.parametrize("page", sorted((ROOT / "docs/jobs").glob("*.md")), ids=lambda page: page.stem)
def test_help_of_a_job_names_its_page(page: Path) -> None:
    named = re.findall(r"docs/\S+\.md", run_reput(page.stem, "--help").out)
    assert named == [page.relative_to(ROOT).as_posix()]
    assert f"](jobs/{page.name})" in (ROOT / "docs/jobs.md").read_text()


def test_each_command_is_in_a_table_and_each_verb_of_a_table_is_a_command() -> None:
    verbs = [cells[0] if cells[0].startswith("`") else cells[1] for cells in rows(VERBS)]
    named = [verb.partition(" --")[0] for cell in verbs for verb in re.findall(r"`([^`]+)`", cell)]
    assert set(named) == commands()


@pytest.mark.parametrize(
    "verbs",
    [
        ["get", "tail", "query", "dump", "consume", "admin peek"],
        ["put", "produce", "admin send"],
        ["follow", "broker --set brokerRole=SLAVE", "dispatch", "export --follow"],
        ["import", "replay", "rebuild", "repair", "prune", "delete-expired"],
    ],
)
def test_verbs_that_one_may_confuse_stand_in_one_table(verbs: list[str]) -> None:
    tables = [[cells[0].strip("`") for cells in rows(table)] for table in VERBS.split("\n\n**")]
    assert verbs in tables


def test_the_page_has_each_exit_status_and_each_way_to_name_a_file() -> None:
    statuses = set(re.findall(r"\b\d+\b", run_reput("--help").out.partition("Exit status:")[2]))
    assert statuses == {cells[0] for cells in rows(PAGE) if cells[0].isdigit()}
    for name in ("--config", "--client-config", "REPUT_CLIENT_CONFIG", *VARIABLES):
        assert re.search(rf"`{name}\b", PAGE), name


def test_words_that_users_asked_for_are_explained() -> None:
    asked = {"kernel", "lake", "whole", "proven", "unit", "ext unit", "light queue", "hole", "finding"}
    assert asked <= set(words("docs/words.md"))


def test_no_word_is_explained_twice() -> None:
    both = words("docs/words.md") + words("ARCHITECTURE.md")
    assert len(both) > 30
    assert len(both) == len(set(both))


@pytest.mark.parametrize("page", ["index.md", "containers.md", "client/testing.md"])
def test_kernels_are_explained_where_a_reader_meets_them_first(page: str) -> None:
    """Some think of Linux or a GPU."""
    first = re.search(r"kernels.*?[^.]*\.", (ROOT / "docs" / page).read_text())
    assert first is not None
    assert "Numba" in first[0]
