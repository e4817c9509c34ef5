"""Stores, files and brokers that the examples of a page find before the first of them runs."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from reput import Broker, Message, MessageStore
from reput.client import MessageClientExt
from reput.client.sync import Producer, PullConsumer, PushConsumer
from reput.formats.metadata import ConsumerOffsets, TopicConfig, encode_metadata
from tests.support.asking import until
from tests.support.broker import SMALL
from tests.support.certificates import write_certificate
from tests.support.commands import run_reput
from tests.support.fake_master import fake_master, log_of
from tests.support.shop import make_shop
from tests.support.sockets import free_ports

LOCAL = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}


@dataclass
class World:
    """Surroundings in which the examples of a page run.

    names: words of the page, and what stands for them here: folders, addresses. left: what ends with the page.
    environment: what is set.
    """

    folder: Path
    left: ExitStack
    names: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def shop(world: World) -> None:
    """`/data/store`."""
    make_shop(world.folder / "data/store")


def broker(world: World) -> None:
    """An empty broker, its name server at 127.0.0.1:9876."""
    started = world.left.enter_context(Broker.start(world.folder / "broker", **SMALL, **LOCAL))
    world.names["127.0.0.1:9876"] = started.namesrv
    world.environment["NAMESRV_ADDR"] = started.namesrv


def broker_with_a_dead_letter(world: World) -> None:
    """A broker with an order that the group `billing` could not handle."""
    started = world.left.enter_context(Broker.start(world.folder / "broker", **SMALL, **LOCAL))
    world.names["127.0.0.1:9876"] = started.namesrv
    world.environment["NAMESRV_ADDR"] = started.namesrv

    def fail(message: MessageClientExt) -> None:
        raise ValueError(message.body)

    with Producer(started.namesrv, group="shop") as producer:
        producer.send(Message("orders", b"one", tags="paid", properties={"region": "eu"}))
    with PushConsumer(
        started.namesrv, group="billing", topics={"orders": "*"}, on_message=fail, consume_from="first",
        max_reconsume_times=0,
    ):  # fmt: skip
        until(lambda: started.in_loop(lambda state: state.store.max_offset("%DLQ%billing", 0)))


def broker_for_fastapi(world: World) -> None:
    """An empty broker, and a stand-in for FastAPI."""
    broker(world)
    shutil.copytree(Path(__file__).parent / "fastapi_stand_in", world.folder / "fastapi")


def broker_with_topics(world: World) -> None:
    """A broker with the topics orders and orders-copy."""
    broker(world)
    for topic in ("orders", "orders-copy"):
        assert run_reput("admin", "create-topic", topic, "--namesrv", world.names["127.0.0.1:9876"]).status == 0


def broker_with_orders(world: World) -> None:
    """A broker with one message in each of the topics orders and refunds."""
    with MessageStore.open(world.folder / "broker", **SMALL) as store:
        for topic in ("orders", "refunds"):
            store.update_topic(TopicConfig(topic, 1, 1))
            store.put_message(Message(topic, b"one", tags="paid"), queue_id=0)
    broker(world)


def broker_with_a_lag(world: World) -> None:
    """A broker `broker-a` at 10.0.0.5 whose group `shop` has consumed two of four orders."""
    with MessageStore.open(world.folder / "broker", **SMALL) as store:
        store.update_topic(TopicConfig("orders", 2, 2))
        for queue_id in (1, 0, 1, 1):
            store.put_message(Message("orders", b"one"), queue_id=queue_id)
    offsets = ConsumerOffsets({"orders@shop": {0: 1, 1: 1}})
    (world.folder / "broker/config/consumerOffset.json").write_bytes(encode_metadata(offsets))
    started = world.left.enter_context(Broker.start(world.folder / "broker", **SMALL, **LOCAL, brokerName="broker-a"))
    with PullConsumer(started.namesrv, group="shop", topics={"orders": "*"}):
        pass  # makes the group
    world.names["10.0.0.5:9876"] = started.namesrv


def shop_and_broker(world: World) -> None:
    """`/data/store`, and a broker with the group `shop`."""
    shop(world)
    broker_with_a_lag(world)


def free_ha_port(world: World) -> None:
    """Another port than 10912 for slaves."""
    world.names["10912"] = str(free_ports(1)[0])


def master(world: World) -> None:
    """A master at broker:10911 with a hundred messages in the first queue of orders."""
    size = 1 << 20
    with MessageStore.open(world.folder / "master", mapped_file_size_commit_log=size) as store:
        store.put_messages([Message("orders", b"%d" % number) for number in range(100)])
        end = store.max_commit_log_offset
    served = world.left.enter_context(fake_master(log_of(world.folder / "master", end), size))
    world.names["broker:10911"] = served.address


def users(world: World) -> None:
    """A certificate; and the first user in the place of alice, whom nobody makes without mqadmin."""
    certificate = write_certificate(world.folder / "certificate")
    shutil.copy(certificate.cert, world.folder / "broker.pem")
    shutil.copy(certificate.key, world.folder / "broker.key")
    world.names["alice"] = "root"
    world.environment["SHOP_SECRET"] = "a long secret"


def two_stores(world: World) -> None:
    """`/brokers/a/store` and `/brokers/b/store`, with pictures besides, so that it pays to read less than all."""
    for name in "ab":
        with MessageStore.open(make_shop(world.folder / f"brokers/{name}/store")) as store:
            store.put_messages([Message("pictures", bytes(100_000), keys=[f"p-{n}"]) for n in range(20)])


def two_stores_one_in_memory(world: World) -> None:
    """The same, and an object storage, which is a folder here."""
    for name in "ab":
        make_shop(world.folder / f"brokers/{name}/store")
    world.names["memory://backups"] = f"file://{world.folder / 'brokers/a'}"


def other_store(world: World) -> None:
    """`/data/other-store`."""
    make_shop(world.folder / "data/other-store")


def store_of_a_reader(world: World) -> None:
    """`STORE`."""
    world.names["STORE"] = str(make_shop(world.folder / "store"))


def copies(world: World) -> None:
    """`/data/store`, a copy of it, and its queues and index built anew."""
    shop(world)
    shutil.copytree(world.folder / "data/store", world.folder / "data/copy")
    assert (
        run_reput("rebuild", world.folder / "data/store", "--output", world.folder / "data/store-rebuilt").status == 0
    )


def files(world: World) -> None:
    """Make what is imported: two exports, and a file of Parquet."""
    shop(world)
    for arguments in (["lake"], ["tables", "--format", "delta"]):
        assert (
            run_reput(
                "export", world.folder / "data/store", world.folder / "data" / arguments[0], *arguments[1:]
            ).status
            == 0
        )
    (world.folder / "data/events").mkdir()
    pq.write_table(
        pa.table({"body": [b"one", b"two"], "tags": ["a", None], "keys": [["k"], []]}),
        world.folder / "data/events/1.parquet",
    )
