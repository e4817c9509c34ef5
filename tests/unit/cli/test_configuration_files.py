"""One name for each kind of configuration file in all commands (docs/commands.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reput.cli.main import app
from tests.support.commands import Run

#: What the options are whose value is a file.
FILES = {
    "--config": "configuration of a server or a store, by RocketMQ's keys",
    "--client-config": "configuration of a client",
    "--body-file": "a body",
    "--raw": "records",
    "--offsets": "offsets of a group",
    "--output": "rows",
    "--report": "a page",
    "--schema-file": "schemas",
}
#: Begin of the error about a key that a file does not have in its second line.
UNKNOWN = {"--config": "unknown configuration key 'wrongKey'", "--client-config": "unknown key; "}


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, each with its words."""
    below = getattr(command, "commands", {})
    if not below:
        yield words, command
    for name, one in below.items():
        yield from commands(one, (*words, name))


COMMANDS = dict(commands(get_command(app)))
TAKING = [(words, option) for words, one in COMMANDS.items() for param in one.params for option in param.opts]
TAKING = [(words, option) for words, option in TAKING if option in UNKNOWN]


def required(command: Any) -> list[str]:
    """Words for all that a command must be given; 1 is a name, a path, a topic and a time."""
    params = [param for param in command.params if param.required and not param.opts[0].startswith("--")]
    options = [param for param in command.params if param.required and param.opts[0].startswith("--")]
    return [*("1" for _ in params), *(word for option in options for word in (option.opts[0], "1"))]


def test_each_option_with_a_file_is_of_a_known_kind() -> None:
    found = {
        param.opts[0]
        for command in COMMANDS.values()
        for param in command.params
        if "FILE" in (param.metavar or "") and param.opts[0].startswith("--")
    }
    assert found == set(FILES)


def test_no_other_option_is_of_a_configuration_file() -> None:
    """A further one, as --broker-conf was, would be another name for the same."""
    named = {
        option
        for command in COMMANDS.values()
        for param in command.params
        for option in param.opts
        if option.startswith("--") and "conf" in f"{option} {param.metavar}".lower()
    }
    assert named == set(UNKNOWN)
    assert len(TAKING) > 20


@pytest.mark.parametrize(("words", "option"), TAKING, ids=[" ".join([*words, option]) for words, option in TAKING])
def test_a_configuration_file_has_the_same_keys_in_every_command(
    run_reput: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("# keys\nwrongKey=1\n")
    more = ["--master", "1"] if words == ("follow",) else []
    answer = run_reput(*words, *required(COMMANDS[words]), *more, option, "file", stdin="")
    assert answer.status == 2
    assert answer.err.startswith(f"reput: file:2: {UNKNOWN[option]}")
    answer = run_reput(*words, *required(COMMANDS[words]), *more, option, "", stdin="")
    assert (answer.status, "an empty path" in answer.err) == (2, True)
