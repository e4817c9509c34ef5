"""`reput admin cluster`, `forget-broker`, `topics`, `topic`, `create-topic`, `delete-topic`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.admin_options import DEFAULT_NAMESRV, Config, Namesrv, WithSystem, Yes, ask, shown
from reput.cli.display.output import iso_time, write_fields, write_json, write_table, write_text
from reput.cli.options import Json, parse_list
from reput.counts import counted

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.admin.topics import TopicState

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


def cluster(*, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False) -> int:
    """Show all brokers: addresses, versions, messages a second, how full their disks are.

    Example:
      reput admin cluster --namesrv 10.0.0.5:9876
    """
    from reput.admin.brokers import brokers

    found, status = ask(namesrv, config, brokers)
    if as_json:
        write_json({"brokers": [asdict(one) for one in found]})
    else:
        write_table(
            ("cluster", "broker", "id", "address", "version", "in/s", "out/s", "disk %"),
            [
                (
                    one.cluster, one.broker, shown(one.broker_id), one.address or "away", shown(one.version),
                    _digits(one.in_tps, 1), _digits(one.out_tps, 1),
                    _digits(one.disk_ratio and 100 * one.disk_ratio, 0),
                )
                for one in found
            ],
        )  # fmt: skip
    return status


def _digits(value: float | None, count: int) -> object:
    """A number with `count` digits after the point."""
    return shown(None if value is None else f"{value:.{count}f}")


def forget_broker(
    broker: Annotated[str, typer.Argument(metavar="NAME", help="The broker's name.")],
    *,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Let all name servers forget a broker that is lost and does not come back; one that is there is refused.

    Example:
      reput admin forget-broker broker-b
    """
    from reput.admin import brokers as admin

    told, status = ask(namesrv, config, lambda client: admin.forget_broker(client, broker))
    if as_json:
        write_json({"broker": broker, "forgotten_by": told})
    else:
        write_text(f"broker {broker} is forgotten by {', '.join(told)}")
    return status


def topics(
    *, all_: WithSystem = False, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False
) -> int:
    """List the topics: queues, brokers, what clients may do.

    Example:
      reput admin topics --namesrv 10.0.0.5:9876
    """
    from reput.admin import topics as admin

    found, status = ask(namesrv, config, lambda client: admin.topics(client, with_system=all_))
    if as_json:
        write_json({"topics": [asdict(one) for one in found]})
    else:
        write_table(
            ("topic", "queues", "perm", "type", "brokers"),
            [(one.topic, shown(one.write_queues), one.perm, one.message_type, ", ".join(one.brokers)) for one in found],
        )
    return status


def topic(topic: _Topic, *, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False) -> int:
    """Show a topic: offsets of its queues, when the last message was stored, and the groups that consume it.

    Example:
      reput admin topic orders
    """
    from reput.admin.topics import topic_state

    found, status = ask(namesrv, config, lambda client: topic_state(client, topic))
    if as_json:
        rows = [
            asdict(one) | {"last_stored": one.last_stored or None, "messages": one.messages} for one in found.queues
        ]
        write_json({"topic": topic, "messages": found.messages, "groups": found.groups, "queues": rows})
    else:
        groups = None if found.groups is None else ", ".join(found.groups) or "none"
        write_fields({"topic": topic, "messages": shown(found.messages), "groups": shown(groups)})
        write_table(
            ("broker", "queue", "first offset", "next offset", "messages", "last stored"),
            [
                (
                    one.broker,
                    one.queue_id,
                    one.min_offset,
                    one.max_offset,
                    one.messages,
                    iso_time(one.last_stored or None),
                )
                for one in found.queues
            ],
        )
    return status


def create_topic(
    topic: _Topic,
    *,
    queues: Annotated[int, typer.Option("--queues", min=1, max=65_535, help="Queues on each broker.")] = 8,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="LIST", help="Only these brokers: broker-a,broker-b.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Make a topic on all brokers; one that is there gets the number of queues.

    If it has more, these can still be read, as their messages would be lost to all consumers: sends alone go to
    fewer. What clients may do with it, and its order, stay.

    Example:
      reput admin create-topic orders --queues 8
    """
    from reput.admin import topics as admin

    made, status = ask(namesrv, config, lambda client: admin.create_topic(client, topic, queues, parse_list(brokers)))
    if as_json:
        write_json({"topic": topic, "queues": queues, "brokers": list(made), "read_queues": made})
    else:
        more = ", ".join(f"{readable} on {name}" for name, readable in made.items() if readable > queues)
        write_text(
            f"topic {topic} has {counted(queues, 'queue')} on {', '.join(made)}"
            + (f"; consumers go on to read the queues that it had, {more}" if more else "")
        )
    return status


def delete_topic(
    topic: _Topic, *, yes: Yes = False, namesrv: Namesrv = DEFAULT_NAMESRV, config: Config = None, as_json: Json = False
) -> int:
    """Delete a topic on all brokers and name servers, once --yes says so.

    A topic of the same name has new messages alone. The old ones stay in the log until that expires.

    Example:
      reput admin delete-topic orders --yes
    """
    from reput.admin import topics as admin

    async def work(client: AdminClient) -> TopicState:
        found = await admin.deletable(client, topic)
        if yes:
            await admin.delete_topic(client, topic)
        return found

    found, status = ask(namesrv, config, work)
    if as_json:
        write_json({"topic": topic, "deleted": yes, "messages": found.messages, "groups": found.groups})
    else:
        assert found.messages is not None, "a topic of which not all is known is not deletable"
        consumed = f"consumed by {', '.join(found.groups)}" if found.groups else "consumed by no group"
        did = "is deleted" if yes else "would be deleted; nothing was changed: add --yes"
        write_text(f"topic {topic} with {counted(found.messages, 'message')}, {consumed}, {did}")
    return status
