"""`reput admin groups`, `lag`, `connections`, `reset`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.admin_options import DEFAULT_NAMESRV, Config, Namesrv, WithSystem, Yes, ask, shown
from reput.cli.display.output import iso_time, write_fields, write_json, write_table, write_text
from reput.cli.options import Json, parse_time
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.admin.groups import QueueReset

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]


def groups(
    *, all_: WithSystem = False, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False
) -> int:
    """List the groups of consumers: members, topics, and messages that they have not consumed.

    Example:
      reput admin groups --namesrv 10.0.0.5:9876
    """
    from reput.admin import groups as admin

    found, status = ask(namesrv, config, lambda client: admin.groups(client, with_system=all_))
    if as_json:
        write_json({"groups": [asdict(one) for one in found]})
    else:
        write_table(
            ("group", "members", "topics", "lag"),
            [(one.group, shown(one.members), shown(one.topics), shown(one.lag)) for one in found],
        )
    return status


def lag(group: _Group, *, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False) -> int:
    """Show how far a group is: lag by queue and in all, and when the last consumed message was stored.

    Example:
      reput admin lag shop
    """
    from reput.admin import groups as admin

    found, status = ask(namesrv, config, lambda client: admin.lag(client, group))
    last = found.last_consumed
    if as_json:
        queues = [asdict(one) | {"last_consumed": one.last_consumed or None, "lag": one.lag} for one in found.queues]
        write_json({"group": group, "lag": found.lag, "last_consumed": last or None, "queues": queues})
    else:
        consumed = None if last is None else iso_time(last or None) or "never"
        write_fields({"group": group, "lag": shown(found.lag), "last consumed": shown(consumed)})
        write_table(
            ("topic", "broker", "queue", "offset", "next offset", "lag", "last consumed"),
            [
                (
                    one.topic, one.broker, one.queue_id, one.offset, one.max_offset, one.lag,
                    iso_time(one.last_consumed or None),
                )
                for one in found.queues
            ],
        )  # fmt: skip
    return status


def connections(
    group: _Group, *, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False
) -> int:
    """Show who of a group is connected, consumers and producers, and what the consumers subscribe to.

    Example:
      reput admin connections shop
    """
    from reput.admin import groups as admin

    found, status = ask(namesrv, config, lambda client: admin.connections(client, group))
    members, subscriptions = found
    if as_json:
        write_json({"group": group, "members": [asdict(one) for one in members], "subscriptions": subscriptions})
    else:
        for topic, expression in subscriptions.items():
            write_fields({"subscribes to": f"{topic} {expression}"})
        write_table(
            ("kind", "client id", "address", "language", "version", "broker"),
            [(one.kind, one.client_id, one.address, one.language, one.version, one.broker) for one in members],
        )
    return status


def reset(
    group: _Group,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|TIME",
            help="New offsets of the group; TIME is 2026-11-23T16:52:43Z, or ms since 1970 UTC.",
        ),
    ],
    yes: Yes = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Show what a reset of a group's offsets would do, and do it once --yes says so.

    Example:
      reput admin reset shop orders --to 2026-11-23T16:00:00Z --yes
    """
    from reput.admin import groups as admin

    if to in ("first", "last"):  # the words of `consume` and `tail`
        raise ConfigError(f"--to {to}: an offset of a group is set to earliest, latest or a TIME")
    target = to if to in (admin.EARLIEST, admin.LATEST) else parse_time(to)

    async def work(client: AdminClient) -> list[QueueReset]:
        plan = await admin.reset_plan(client, group, topic, target)
        if yes:
            await admin.reset(client, group, topic, target, plan)
        return plan

    plan, status = ask(namesrv, config, work)
    if as_json:
        write_json({"group": group, "topic": topic, "done": yes, "queues": [asdict(one) for one in plan]})
    else:
        write_table(
            ("broker", "queue", "offset", "after the reset", "consumed again", "passed over"),
            [
                (one.broker, one.queue_id, _text(one.before), one.after, max(_again(one), 0), max(-_again(one), 0))
                for one in plan
            ],
        )
        write_text("the offsets are reset" if yes else "nothing was changed: add --yes")
    return status


def _text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _again(one: QueueReset) -> int:
    """Messages that the group gets again; below 0: that it passes over."""
    return (one.after if one.before is None else one.before) - one.after
