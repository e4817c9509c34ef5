"""Ways to call a command: an option that has no meaning in the chosen way is refused, never passed over.

Defaults in the user's file, and the environment, are no calls: they count if they have a meaning.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from reput.config.arguments import LEAST_LONG, MOST_LONG, check_whole, refusal
from reput.errors import ConfigError


class Rule(NamedTuple):
    """Options that count only in some ways.

    A way is an option (`--follow`), an argument (`STORE`), or an option with its value (`--what log`).

    Attributes:
        options: by their names on the command line.
        only_with: one of these must be given.
        not_with: none of these may be given.
    """

    options: tuple[str, ...]
    only_with: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()


_MOST_FLOAT = 10**9
_ONE_MESSAGE = ("--message-id", "--commit-log-offset")
#: By the words of a command.
RULES: dict[str, tuple[Rule, ...]] = {
    "put": (Rule(("--format",), only_with=("--stdin",)),),
    "tail": (
        Rule(("--group",), only_with=("--offsets",)),
        Rule(("--offsets",), only_with=("--group",)),
    ),
    "query": (
        Rule(("--key",), not_with=("--sql", *_ONE_MESSAGE)),
        Rule(("--begin", "--end"), not_with=_ONE_MESSAGE),
        Rule(("--topics", "--output", "--report", "--work-dir", "--runner"), not_with=("--topic", *_ONE_MESSAGE)),
        Rule(("--schema", "--damaged", "--max-findings"), only_with=("--sql",)),
        Rule(("--master",), only_with=("--runner spark",)),
        Rule(("--set",), only_with=("--topic", *_ONE_MESSAGE)),
    ),
    "dump": (
        Rule(("--begin-offset", "--end-offset", "--topic", "--queue-id"), only_with=("--what log", "--what queue")),
        Rule(("--key-hash", "--set"), only_with=("--what index",)),
    ),
    "stats": (
        Rule(("--time-of",), only_with=("--bucket",)),
        Rule(("--available-now", "--watermark"), only_with=("--follow",)),
        Rule(
            ("--largest", "--crc", "--report", "--set", "--config", "--runner", "--max-findings"),
            not_with=("--follow",),
        ),
    ),
    "export": (
        Rule(("--schema", "--new-fields"), only_with=("--decode json",)),
        Rule(("--schema-file",), only_with=("--decode avro", "--decode protobuf")),
        Rule(("--strict",), only_with=("--decode utf8", "--decode json", "--decode avro", "--decode protobuf")),
        Rule(("--compact",), only_with=("--format delta", "--format iceberg")),
        Rule(("--retain-hours",), only_with=("--compact",)),
        Rule(("--catalog", "--namespace"), only_with=("--format iceberg",)),
        Rule(("--interval",), only_with=("--follow",)),
    ),
    "produce": (Rule(("--tags", "--key", "--property", "--rate"), not_with=("--format parquet",)),),
    "consume": (
        Rule(("--tags",), only_with=("--group",)),
        Rule(("--follow", "--count"), not_with=("--format parquet",)),
    ),
    "archive": (
        Rule(("--commit-log-path", "--follow"), not_with=("--verify",)),
        Rule(("--interval",), only_with=("--follow",)),
    ),
    "warm": (
        Rule(("--bytes", "--commit-log-path", "--set"), only_with=("STORE",)),
        Rule(("--cache",), not_with=("STORE",)),
        Rule(("--where",), not_with=("STORE", "--cache", "--spark")),
    ),
    "admin peek": (
        Rule(("--offset",), only_with=("--queue-id",)),
        Rule(("--offset",), not_with=("--time",)),
    ),
}


def check_numbers(context: Any) -> None:
    """Raises ConfigError for a number that no system has; what a number means, its command checks.

    Whole numbers are Java's `long`; seconds, and messages a second, end where a machine's life does.
    """
    for option in context.command.params:
        value = context.params.get(option.name)
        has_words = option.type_descriptor.parameter_info.parser is not None  # as `--speed max`, which is no number
        if isinstance(value, float) and not abs(value) <= _MOST_FLOAT and not has_words:
            raise refusal(option.opts[0], value, f"a number, {_MOST_FLOAT} at most")
        if isinstance(value, int) and not isinstance(value, bool):
            check_whole(option.opts[0], value, -math.inf if value > 0 else LEAST_LONG, MOST_LONG)


def check_ways(context: Any) -> None:
    """Raise ConfigError for an option of the command line that has no meaning in the way that is called.

    `context` is that of a command, with the values of its parameters.
    """
    parameters = {text: one for one in context.command.params for text in (*one.opts, one.name.upper())}

    def is_given(way: str) -> bool:
        option, _, wanted = way.partition(" ")
        value = context.params[parameters[option].name]
        return bool(value == wanted if wanted else value not in (parameters[option].default, []))

    for rule in RULES.get(context.command_path.removeprefix("reput "), ()):
        for option in rule.options:
            source = context.get_parameter_source(parameters[option].name)
            if source is None or source.name != "COMMANDLINE":
                continue
            if rule.only_with and not any(map(is_given, rule.only_with)):
                raise ConfigError(f"{option} counts only with {' or '.join(rule.only_with)}")
            for way in filter(is_given, rule.not_with):
                raise ConfigError(f"{option} has no meaning with {way}")
