"""An option that has no meaning in the way that a command is called is refused in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

import reput
from reput.cli.main import app
from reput.cli.option_rules import RULES, check_numbers, check_ways
from reput.errors import ConfigError
from reput.jobs.audit import audit
from reput.jobs.backup import backup, restore
from reput.jobs.lake import export
from reput.jobs.rebuild import rebuild
from reput.jobs.runner import LocalRunner
from reput.store.sinks.replay import replay
from tests.support.commands import Run

#: Options that count in each way, of the commands that have several ways.
ALWAYS = {
    "put": "--topic --body --body-file --stdin --tags --key --property --queue-id --set --config",
    "tail": "--topic --queue-id --tags --from --timeout --count --format --commit-log-path",
    "query": "--topic --max-num --message-id --commit-log-offset --sql --commit-log-path",
    "dump": "--what --limit --hex --commit-log-path",
    "stats": "--topics --by --bucket --latency --work-dir --follow --commit-log-path --master",
    "export": "--topics --columns --decode --format --target-file-bytes --follow --allow-data-loss --damaged --report "
    "--commit-log-path --runner --master --max-findings",
    "produce": "--format --namesrv --client-config",
    "consume": "--group --from --format --namesrv --client-config",
    "archive": "--runner --master --max-findings --verify",
    "warm": "--spark",
    "admin peek": "--queue-id --time --count --namesrv --client-config",
}
#: Commands all of whose options count together.
ONE_WAY = {
    *"get info top audit diff repair rebuild import replay backup backups restore prune follow rejoin".split(),
    *"dispatch delete-expired config man broker namesrv".split(),
    *(
        f"admin {name}"
        for name in (
            "cluster forget-broker topics topic create-topic delete-topic groups lag connections reset send".split()
        )
    ),
}
#: Options of all commands.
COMMON = {"--quiet", "--verbose", "--json"}
#: What a command is called with at the least.
CALLS = {
    "put": ("S", "--topic", "t"), "tail": ("S", "--topic", "t"), "query": ("S",), "dump": ("S",), "stats": ("S",),
    "export": ("S", "D"), "produce": ("t",), "consume": ("t",), "warm": (), "admin peek": ("t",),
    "archive": ("S", "D"),
}  # fmt: skip
#: Values of options, where 7 is none.
VALUES = {
    "--format": "json", "--runner": "local", "--damaged": "skip", "--time-of": "born", "--new-fields": "add",
    "--report": "r.html", "--output": "r.csv",
}  # fmt: skip


class Case(NamedTuple):
    """An option, and a way in which it counts, or does not."""

    command: str
    option: str
    way: str


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands(get_command(app)))
COUNTS = [
    Case(command, option, way)
    for command, rules in RULES.items()
    for rule in rules
    for option in rule.options
    for way in rule.only_with
]
HAS_NO_MEANING = [
    Case(command, option, way)
    for command, rules in RULES.items()
    for rule in rules
    for option in rule.options
    for way in rule.not_with
]


def check(case: Case, *more: str, with_way: bool) -> None:
    """Call a command with the option, and with or without the way, up to the check."""
    command = COMMANDS[case.command]
    flags = {text for one in command.params for text in one.opts if getattr(one, "is_flag", False)}

    def words(option: str, value: str = "") -> list[str]:
        if not option.startswith("--"):
            return ["a-store"]
        return [option] if option in flags else [option, value or VALUES.get(option, "7")]

    arguments = [*CALLS[case.command], *words(case.option), *(words(*case.way.split()) if with_way else ()), *more]
    with command.make_context(case.command, arguments) as context:
        check_ways(context)


def test_each_option_of_each_command_is_in_one_table() -> None:
    assert set(COMMANDS) - ONE_WAY == set(RULES) == set(ALWAYS) == set(CALLS)
    for name in RULES:
        of_rules = {option for rule in RULES[name] for option in rule.options}
        always = set(ALWAYS[name].split())
        assert not of_rules & always
        options = {text for one in COMMANDS[name].params for text in one.opts if text.startswith("--")}
        assert options - COMMON == of_rules | always, name


@pytest.mark.parametrize("case", COUNTS, ids=" ".join)
def test_an_option_counts_in_its_ways_alone(case: Case) -> None:
    check(case, *(("--format", "delta") if case.option == "--retain-hours" else ()), with_way=True)
    elsewhere = ("--what", "checkpoint") if case.command == "dump" else ()  # a way is the default
    with pytest.raises(ConfigError, match=f"^{case.option} counts only with .*{case.way}"):
        check(case, *elsewhere, with_way=False)


@pytest.mark.parametrize("case", HAS_NO_MEANING, ids=" ".join)
def test_an_option_counts_in_all_ways_but_some(case: Case) -> None:
    more = ("--queue-id", "0") if case.command == "admin peek" else ()
    check(case, *more, with_way=False)
    with pytest.raises(ConfigError, match=f"^{case.option} has no meaning with {case.way}"):
        check(case, *more, with_way=True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("query", "STORE", "--topics", "orders", "--max-findings", 3), "--max-findings counts only with --sql"),
        (("query", "STORE", "--commit-log-offset", 0, "--end", 5), "--end has no meaning with --commit-log-offset"),
        (("stats", "STORE", "--follow", "--crc"), "--crc has no meaning with --follow"),
        (("export", "STORE", "LAKE", "--compact", 0, "--retain-hours", 1), "--compact counts only with --format delta"),
        (("admin", "peek", "orders", "--offset", 3), "--offset counts only with --queue-id"),
    ],
)
def test_what_is_refused_is_one_line_and_nothing_is_done(
    words: tuple[object, ...], reason: str, store: Path, tmp_path: Path, run_reput: Run
) -> None:
    places = {"STORE": store, "LAKE": tmp_path / "lake"}
    answer = run_reput(*(places.get(str(word), word) for word in words))
    assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert reason in answer.err
    assert not (tmp_path / "lake").exists()


def test_a_default_of_the_users_file_counts_where_it_has_a_meaning(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_reput: Run
) -> None:
    (tmp_path / "config.toml").write_text('[stats]\nwatermark = "5 minutes"\n')
    monkeypatch.setenv("REPUT_DEFAULTS", str(tmp_path / "config.toml"))
    assert run_reput("stats", store).status == 0


NUMBERS = [
    (name, option.opts[0], option.type_descriptor.annotation)
    for name, command in COMMANDS.items()
    for option in command.params
    if option.type_descriptor.annotation in (int, float)
    if not (option.type_descriptor.annotation is float and option.type_descriptor.parameter_info.parser)
]


@pytest.mark.parametrize(("name", "option", "kind"), NUMBERS)
def test_a_number_that_no_system_has_is_refused_by_its_option(name: str, option: str, kind: type) -> None:
    assert len(NUMBERS) > 40
    command = COMMANDS[name]
    context = command.context_class(command)
    (param,) = (one.name for one in command.params if one.opts[0] == option)
    values = [1e10, float("inf"), float("nan")] if kind is float else [1 << 63, -(1 << 63) - 1, 10**30]
    for value in values:
        context.params = {param: value}
        with pytest.raises(ConfigError, match=f"^{option} "):
            check_numbers(context)
    context.params = {param: 5}
    check_numbers(context)


def test_a_start_that_is_no_time_of_python_is_refused_in_a_line(store: Path, run_reput: Run) -> None:
    texts = ["1796053566612168562", "1796053566000000", "9" * 20, f"-{'9' * 20}"]
    for text in (*texts, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        for words in (("tail", store, "--topic", "orders", "--timeout", 0), ("consume", "orders")):
            answer = run_reput(*words, "--from", text)
            assert (answer.status, answer.out) == (2, "")
            assert "expected a time of the years 1 to 9999" in answer.err


PATHS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option in command.params
    if re.search("STORE|DIR|FILE|TARGET|SOURCE", option.metavar or "")
    if option.opts[0] != "--schema-file"  # a topic may stand before it: `reput.cli.schema_files` reads it
]


def test_the_home_folder_has_its_sign_in_each_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell replaces it in `~/x`, but not in `--output=~/x`; a file of defaults has no shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len({option.opts[0] for _, option in PATHS}) > 15
    for name, option in PATHS:
        given: Any = ["~/x"] if option.nargs == -1 or "list" in str(option.type_descriptor.annotation) else "~/x"
        found = option.callback(COMMANDS[name].context_class(COMMANDS[name]), option, given)
        expected: Any = [f"{tmp_path}/x"] if isinstance(given, list) else f"{tmp_path}/x"
        assert found == expected or option.opts[0] == "--commit-log-path", (name, option.opts)


def test_the_home_folder_has_its_sign_in_python_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with reput.MessageStore.open("~/store", small=True) as opened:
        opened.put_message(reput.Message("orders", b"x"))
    assert reput.read_log("~/store").read_all().num_rows == 1
    rebuild("~/store", "~/queues", runner=LocalRunner(1))
    backup("~/store", "~/backups", runner=LocalRunner(1))
    restore("~/backups", "~/restored", runner=LocalRunner(1))
    export("~/store", "~/lake", runner=LocalRunner(1))
    replay("~/store", "~/replayed")
    assert {path.name for path in tmp_path.iterdir()} >= {"store", "queues", "backups", "restored", "lake", "replayed"}
    assert not (tmp_path / "~").exists()
    with pytest.raises(ConfigError, match="lies inside the store"):
        audit("~/store", work_dir="~/store/work", runner=LocalRunner(1))
