"""RocketMQ 5's gRPC clients on our broker, at its own port and behind Apache's own proxy."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.formats.message_ext import MessageExt
from reput.formats.pop_messages import ACK_TAG, decode_ack
from reput.remoting.codes import RequestCode
from reput.remoting.topic_validator import TIMER_TOPIC
from reput.service.pop.topics import pop_retry_topic_of
from tests.support.asking import call
from tests.support.async_tests import run
from tests.support.broker import Client, make_topic, messages_of, pull_command, with_topic
from tests.support.rocketmq.clients import built, run_client, sorted_bodies
from tests.support.rocketmq.grpc_proxy import grpc_proxy

pytestmark = pytest.mark.java

HERE = {
    "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": 1 << 20,
    "transaction_check_interval": 500,
    "transaction_check_max": 1000,  # a proxy takes its time to come, and nothing is given up before
}  # fmt: skip
KINDS = ("normal", "fifo", "delay", "transaction")
LANGUAGES = ("go", "java", "node", "python")
QUEUES = 2
#: A message with a time comes some milliseconds after it; a busy machine may take long.
LATE_MS = 30_000


async def make_topics_and_groups(client: Client, language: str) -> None:
    """A topic and a group for each kind of messages: the proxy refuses a message of another kind."""
    for kind in KINDS:
        await with_topic(client, f"{language}-{kind}", QUEUES, attributes=f"+message.type={kind.upper()}")
    for kind in (*KINDS, "simple"):
        group = {"groupName": f"{language}-{kind}", "consumeMessageOrderly": kind == "fifo"}
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(group).encode())
        assert answer.code == 0, answer


@pytest.fixture(scope="module", params=["own port", "proxy"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A broker, and the address for clients: its own, or that of a proxy in front of it."""

    async def prepare() -> None:
        host, _, port = broker.address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        for language in LANGUAGES:
            await make_topics_and_groups(client, language)
        await client.leave()

    folder = tmp_path_factory.mktemp("grpc")
    with Broker.start(folder / "store", **HERE) as broker:
        run(prepare())
        if request.param == "own port":
            yield broker, broker.address
        else:
            with grpc_proxy(broker.namesrv, folder) as proxy:
                yield broker, proxy


def stored(address: str, topic: str, queues: int) -> list[MessageExt]:
    """The messages of a topic, a queue after the other."""
    found: list[MessageExt] = []
    for queue_id in range(queues):
        offset = 0
        while (answer := call(address, pull_command(topic, offset, queueId=queue_id))).code == 0:
            found += messages_of(answer)
            offset = found[-1].queue_offset + 1
    return found


def acked(address: str, group: str) -> list[str]:
    """The topics of the messages that a group has acked, or made visible at another time."""
    messages = stored(address, TIMER_TOPIC, 1)  # where they wait for the end of the invisible time
    acks = [decode_ack(one.body, "broker-a") for one in messages if one.tags == ACK_TAG]
    return [ack.key.topic for ack in acks if ack is not None and ack.key.group == group for _ in ack.offsets]


@pytest.fixture(scope="module")
def programs(served: tuple[Broker, str]) -> Iterator[dict[str, Future[Any]]]:
    """What the program in each language tells: they run side by side, as they wait for what they make invisible."""
    with ThreadPoolExecutor() as pool:
        yield {language: pool.submit(run_client, f"grpc/{language}", served[1], language) for language in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unmodified_client_does_all_that_it_can(
    served: tuple[Broker, str], programs: dict[str, Future[Any]], language: str
) -> None:
    broker, _ = served
    told = programs[language].result()

    topic, group = f"{language}-normal", f"{language}-simple"
    messages = [one for kind in ("normal", "fifo") for one in stored(broker.address, f"{language}-{kind}", QUEUES)]
    assert len(messages) == 9 + 20
    assert told["sent"] == {one.body.decode(): one.unique_key for one in messages}

    again = told["received"][0]["body"]
    assert sorted((one["body"], one["attempt"]) for one in told["received"]) == sorted(
        [*((f"m-{i}", 1) for i in range(9)), (again, 2)]
    )
    for one in told["received"]:
        number = int(one["body"].removeprefix("m-"))
        assert (one["tag"], one["id"]) == ("abc"[number % 3], told["sent"][one["body"]])
        assert sorted(one["keys"]) == ["every", f"key-{number}"]
    retry_topic = pop_retry_topic_of(topic, group, v2=False)
    assert sorted(acked(broker.address, group)) == [retry_topic, *[topic] * 9]

    assert sorted_bodies(told["pushed"]) == [f"m-{i}" for i in range(9) if i % 3 != 1]
    for group in "xy":
        steps = [one["body"] for one in told["ordered"] if one["body"][0] == group]
        assert steps == [f"{group}-{i:02d}" for i in range("xy".index(group), 20, 2)]
    assert 0 <= told["late_ms"] < LATE_MS
    assert sorted_bodies(told["transaction"]) == ["checked", "commit"]


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    """As it stands, but for the address: with Apache's client and the packages that it asks for."""
    page = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    assert "127.0.0.1:10911" in program

    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        python = built("grpc/python") / "venv/bin/python"
        text = program.replace("127.0.0.1:10911", broker.address) + "import os; os._exit(0)"
        told = subprocess.run([python, "-c", text], capture_output=True, text=True, timeout=120, check=True)
        (sent,) = stored(broker.address, "orders", 1)
    message_id, body = told.stdout.split()
    assert (message_id, body) == (sent.unique_key, "b'hello'")
