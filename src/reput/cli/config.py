"""`reput config`: show and explain the keys of the configuration."""

from __future__ import annotations

from dataclasses import fields

from reput.cli.options import BrokerConf, Json, Settings, broker_and_store_config
from reput.cli.output import write_json, write_table, write_text


def config(*, settings: Settings, broker_conf: BrokerConf = None, as_json: Json = False) -> None:
    """Show and explain every key of the configuration.

    For each key: who uses it, its value, its unit, RocketMQ's default where it differs, and its meaning. A store uses
    the store's keys, `reput broker` all of them. Both use SYNC_FLUSH unless a broker.conf is given, or --set says
    otherwise.

    Example:
      reput config --set flushDiskType=ASYNC_FLUSH --set mappedFileSizeCommitLog=67108864
    """
    from reput.config.properties import camel_case
    from reput.config.rocketmq_config import shown

    chosen, chosen_store, ignored = broker_and_store_config(settings, broker_conf)
    keys = [
        {
            "key": camel_case(key.name),
            "of": of,
            "value": shown(key, getattr(one, key.name)),
            "default": key.default,
            "unit": key.metadata["unit"],
            "meaning": key.metadata["doc"],
        }
        for of, one in (("store", chosen_store), ("broker", chosen))
        for key in fields(one)
        if key.metadata
    ]
    if as_json:
        write_json({"keys": keys, "ignored": list(ignored)})
    else:
        rows = [
            (key["key"], key["of"], _text(key["value"], key["default"], key["unit"]), key["meaning"]) for key in keys
        ]
        write_table(("key", "of", "value", "meaning"), rows, one_line=("key", "of"))
        if ignored:
            write_text(f"ignored: {', '.join(ignored)}")


def _text(value: object, default: object, unit: str) -> str:
    """Text of a value as in a broker.conf, with its unit, and RocketMQ's default where it differs."""
    chosen, usual = ("" if each is None else str(each) for each in (value, default))
    if isinstance(value, bool):
        chosen, usual = chosen.lower(), usual.lower()
    text = f"{chosen} {unit}".strip()
    return text if value == default else f"{text} (default {usual})"
