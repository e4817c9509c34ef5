"""Numbers of index files for commands that read: by `--set` if the files do not tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from reput.cli.options import parse_pairs, store_config
from reput.errors import ConfigError

#: Keys that `--set` takes in commands that only read.
_INDEX_KEYS = ("max_hash_slot_num", "max_index_num")

IndexNumbers = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="maxHashSlotNum or maxIndexNum, if index files do not have them.",
        default_factory=list,
        show_default=False,
    ),
]


def index_numbers(settings: Sequence[str]) -> dict[str, Any]:
    """Slots and entries of `--set` for a command that only reads; raises ConfigError for any other key."""
    from reput.config.properties import camel_case, snake_case

    config = store_config(settings, None)
    names = [snake_case(name) for name in parse_pairs(settings, "--set")]
    for name in names:
        if name not in _INDEX_KEYS:
            allowed = " and ".join(map(camel_case, _INDEX_KEYS))
            raise ConfigError(f"--set {camel_case(name)}: this command only reads, and takes {allowed} only")
    return {name: getattr(config, name) for name in names}
