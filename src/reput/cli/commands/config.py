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

    Examples:
      reput config flush
      reput config --set flushDiskType=ASYNC_FLUSH --set mappedFileSizeCommitLog=67108864
    """
    from reput.config.properties import camel_case
    from reput.config.rocketmq_config import shown

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
    if key is not None:
        keys = _with(key, keys)
    if as_json:
        write_json({"keys": keys, "ignored": list(ignored)})
        return
    rows = [
        (
            one["key"], one["of"], *(_text(one[name], one["unit"]) for name in ("value", "default", "rocketmq")),
            one["meaning"],
        )
        for one in keys
    ]  # fmt: skip
    write_table(_COLUMNS, rows, one_line=("key", "of"))
    if ignored:
        write_text(f"ignored: {', '.join(ignored)}")


def _with(text: str, keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The keys that have a text in their names; raises ConfigError if none has, with what may have been meant."""
    from reput.config.properties import camel_case
    from reput.config.rocketmq_config import nearest_key
    from reput.config.rocketmq_keys import ROCKETMQ_KEYS

    wanted = (text.lower(), camel_case(text).lower())
    found = [key for key in keys if any(one in key["key"].lower() for one in wanted)]
    if found:
        return found
    unused = [name for name in ROCKETMQ_KEYS if any(one in name.lower() for one in wanted)]
    nearest = nearest_key(text, [key["key"] for key in keys])
    hint = f"; RocketMQ's {', '.join(unused)} would do nothing here" if unused else ""
    hint = hint or (f"; did you mean {nearest}?" if nearest else "")
    raise ConfigError(f"no key of broker or store has {text!r} in its name{hint}")


def _text(value: object, unit: str) -> str:
    """Text of a value as in a broker.conf, and the unit of a number."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value} {unit}".rstrip() if isinstance(value, int) else str(value)
