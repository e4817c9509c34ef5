"""`reput config`: show and explain the keys of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from reput.cli.display.output import write_json, write_table, write_text
from reput.cli.options import BrokerConf, Json, Settings, broker_and_store_config
from reput.errors import ConfigError

_COLUMNS = ("key", "of", "value", "default", "RocketMQ's", "meaning")
_COLUMNS_OF_UNUSED = ("RocketMQ's key", "since", "here")


def config(
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="Only keys whose name has this in it, as flush; no case counts."),
    ] = None,
    *,
    settings: Settings,
    broker_conf: BrokerConf = None,
    as_json: Json = False,
) -> None:
    """Show and explain the keys of the configuration.

    For each key: who uses it, its value, reput's default, RocketMQ's default, and its meaning. A store uses the store's
    keys, `reput broker` all of them. A key that neither a broker.conf nor --set names has reput's default: so messages
    are synced before they are acknowledged, unless flushDiskType=ASYNC_FLUSH is named.

    With KEY, and with --json, keys of RocketMQ 4.9.7 to 5.5.1 follow that have no effect here, or of which one value
    alone is taken: why, and the first version with the key if 5.3.3 has it not (of 5.4.0, 5.5.0 and 5.5.1).

    Examples:
      reput config flush
      reput config timerRocksDB
      reput config --set flushDiskType=ASYNC_FLUSH --set mappedFileSizeCommitLog=67108864
    """
    from reput.config.properties import camel_case
    from reput.config.rocketmq_config import shown
    from reput.config.rocketmq_keys import unused_keys

    chosen, chosen_store, ignored = broker_and_store_config(settings, broker_conf)
    keys: list[dict[str, Any]] = [
        {
            "key": camel_case(one.name),
            "of": of,
            "value": shown(one, getattr(values, one.name)),
            "default": one.default,
            "rocketmq": one.metadata["rocketmq"],
            "unit": one.metadata["unit"],
            "meaning": one.metadata["doc"],
        }
        for of, values in (("store", chosen_store), ("broker", chosen))
        for one in fields(values)
        if one.metadata
    ]
    unused: list[dict[str, Any]] = [
        {"key": one.name, "type": one.type, "since": one.since or None, "meaning": one.effect} for one in unused_keys()
    ]
    if key is not None:
        keys, unused = _with(key, keys, unused)
    refused = [why for _, why in chosen_store.refusals]
    if as_json:
        write_json({"keys": keys, "unused": unused, "ignored": list(ignored), "refused": refused})
        return
    rows = [
        (
            one["key"], one["of"], *(_text(one[name], one["unit"]) for name in ("value", "default", "rocketmq")),
            one["meaning"],
        )
        for one in keys
    ]  # fmt: skip
    if rows:
        write_table(_COLUMNS, rows, one_line=("key", "of"))
    if key is not None and unused:
        texts = [(one["key"], one["since"] or "", one["meaning"]) for one in unused]
        write_table(_COLUMNS_OF_UNUSED, texts, one_line=_COLUMNS_OF_UNUSED[:2])
    if ignored:
        write_text(f"ignored: {', '.join(ignored)}")
    for why in refused:
        write_text(f"no broker starts with {why}")


def _with(text: str, *kinds: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The keys of each kind that have a text in their names.

    Raises ConfigError if none has, with what may have been meant.
    """
    from reput.config.properties import camel_case
    from reput.config.rocketmq_config import nearest_key

    wanted = (text.lower(), camel_case(text).lower())
    found = [[key for key in keys if any(one in key["key"].lower() for one in wanted)] for keys in kinds]
    if any(found):
        return found
    nearest = nearest_key(text, [key["key"] for keys in kinds for key in keys])
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise ConfigError(f"no key of broker or store has {text!r} in its name{hint}")


def _text(value: object, unit: str) -> str:
    """Text of a value as in a broker.conf, and the unit of a number."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value} {unit}".rstrip() if isinstance(value, int) else str(value)
