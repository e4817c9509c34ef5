"""What a broker tells a monitoring system."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from pathlib import Path

import pytest

from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.config.broker import BrokerConfig
from reput.errors import ConfigError, RemotingError, StoreError, StoreFullError, StorePoisonedError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.transport.http import HttpServer
from tests.support.broker import (
    LONG_MS,
    SYNCED,
    Served,
    batch_command,
    consumer,
    controller_of,
    pull_command,
    send_command,
    serving_broker,
    with_topic,
)
from tests.support.faulty_files import FaultyFiles, fail_next, no_objection
from tests.support.heard import heard
from tests.support.held_disk import HeldDisk
from tests.support.metrics import MEASURED, families, labelled, labels_of, let_happen, page

GOLDEN, DIFFERENCES = Path("tests/golden/metrics-5.3.3.json"), Path("docs/design/differences.md")
Samples = dict[tuple[str, str, str], float]


async def samples(served: Served) -> Samples:
    """Each value by its name, its topic and its group."""
    return {
        (one.name, one.labels.get("topic", ""), one.labels.get("consumer_group", "")): one.value
        for family in await families(served)
        for one in family.samples
    }


async def test_messages_are_counted_by_topic_and_by_group(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        client = await served.client()
        await with_topic(client, "orders")
        for body in (b"a", b"b", b"c"):
            assert (await client.send_message("orders", body)).code == 0
        await client.heartbeat("c", consumer("g", "orders"), producers=["p"])
        (answer,) = client.begin_all([pull_command("orders", 1, commit=1)])
        records = (await answer).body
        found = await samples(served)
        assert found["rocketmq_messages_in_total", "orders", ""] == 3
        assert found["rocketmq_messages_out_total", "orders", "g"] == 2
        assert found["rocketmq_throughput_out_total", "orders", "g"] == len(records)
        assert found["rocketmq_throughput_in_total", "orders", ""] == len(records) / 2 * 3
        assert found["rocketmq_consumer_lag_messages", "orders", "g"] == 2
        assert found["rocketmq_consumer_inflight_messages", "orders", "g"] == 2
        assert found["rocketmq_consumer_ready_messages", "orders", "g"] == 0
        assert found["rocketmq_consumer_lag_latency_milliseconds", "orders", "g"] >= 0
        assert found["rocketmq_consumer_connections", "", "g"] == 1
        assert found["rocketmq_producer_connections", "", ""] == 1
        assert found["rocketmq_broker_permission", "", ""] == 6
        assert found["rocketmq_storage_dispatch_behind_bytes", "", ""] == 0
        assert found["rocketmq_storage_size_bytes", "", ""] > 1 << 20
        assert 0 < found["reput_storage_disk_ratio", "", ""] <= 1


async def test_all_metrics_name_the_broker_and_the_operators_labels(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", metrics_label="zone:z1,rack:7", **MEASURED) as served:
        _, text = await page(served.controller.metrics, "/metrics")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert len(lines) >= 8
        own = ('zone="z1"', 'rack="7"', 'node_type="broker"', 'cluster="DefaultCluster"', 'node_id="broker-a"')
        assert [line for line in lines for label in own if label not in line] == []


def without_reason() -> set[str]:
    """The metrics that stand in the table of differences as missing."""
    rows = [line.split(" | ") for line in DIFFERENCES.read_text().splitlines() if line.startswith("| `rocketmq_")]
    return {name for row in rows if row[2].startswith("missing: ") for name in re.findall(r"`(\w+)`", row[0])}


async def test_each_of_rocketmqs_metrics_is_told_with_its_labels_or_has_a_reason(tmp_path: Path) -> None:
    golden = {
        re.sub("_(bucket|count|sum)$", "", name): labels for name, labels in json.loads(GOLDEN.read_text()).items()
    }

    async with serving_broker(tmp_path / "store", timer_precision_ms=100, **MEASURED) as served:
        await let_happen(served)
        told = {
            re.sub("_(bucket|count|sum)$", "", name): sorted(labels - {"le"})
            for name, labels in labels_of(await families(served)).items()
            if name.startswith("rocketmq_") and not name.endswith("_created")
        }
        assert {name: labels for name, labels in told.items() if golden.get(name) != labels} == {}
        assert golden.keys() - told.keys() == without_reason() & golden.keys()


async def test_sizes_of_messages_are_in_ranges_whatever_way_they_were_dispatched(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        client = await served.client()
        await with_topic(client, "orders")
        answers = client.begin_all([send_command("orders", bytes(size)) for size in (1, 100, 900, 2000, 4200, 9000)])
        for answer in answers:
            assert (await answer).code == 0
        await client.round_trip()
        assert (await client.send_message("orders", bytes(300))).code == 0  # a small pass: the queue has units
        assert (await client.send_message("orders", bytes(5000))).code == 0
        await client.round_trip()
        ranges = await labelled(served, "rocketmq_message_size_bucket", "topic", "le")
        counts = [value for (topic, _), value in ranges.items() if topic == "orders"]
        assert counts == [3, 5, 8, 8, 8, 8, 8]
        bounds = [float(le) for topic, le in ranges if topic == "orders"]
        assert bounds == [1024, 4096, 524288, 1048576, 2097152, 4194304, float("inf")]
        records = (await client.pull("orders", maxMsgNums=32)).body
        sums = await labelled(served, "rocketmq_message_size_sum", "topic")
        assert sums[("orders",)] == len(records)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_times_of_requests_are_by_their_codes(tmp_path: Path, flush: str) -> None:
    async with serving_broker(tmp_path / "store", flush_disk_type=flush, **MEASURED) as served:
        client = await served.client()
        await with_topic(client, "orders")
        codes = [RequestCode.SEND_MESSAGE_V2] * 3 + [RequestCode.SEND_MESSAGE]
        for code in codes:  # the first one is taken by the processor, the others by the kernel
            assert (await client.send_message("orders", code=code)).code == 0
        (answer,) = client.begin_all([batch_command("orders", [b"1", b"2"])])
        assert (await answer).code == 0
        (held,) = client.begin_all([pull_command("orders", 6, hold_ms=LONG_MS)])
        await client.round_trip()
        assert (await client.send_message("orders")).code == 0
        assert (await held).code == 0
        assert (await client.pull("none")).code == ResponseCode.TOPIC_NOT_EXIST
        await client.one_way(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="orders", queueId=0,
                             commitOffset=1)  # fmt: skip
        labels = ("request_code", "response_code", "is_long_polling", "result")
        found = await labelled(served, "rocketmq_rpc_latency_milliseconds_count", *labels)
        assert found["send_message_v2", "success", "false", "success"] == 4
        assert found["send_message", "success", "false", "success"] == 1
        assert found["send_batch_message", "success", "false", "success"] == 1
        assert found["pull_message", "success", "true", "success"] == 1
        assert found["pull_message", "topic_not_exist", "false", "success"] == 1
        assert found["update_consumer_offset", "success", "false", "oneway"] == 1
        assert found["update_and_create_topic", "success", "false", "success"] == 1
        ranges = await labelled(served, "rocketmq_rpc_latency_milliseconds_bucket", "request_code", "le")
        bounds = [float(le) for code, le in ranges if code == "update_and_create_topic"]
        assert bounds == [1, 3, 5, 7, 10, 100, 1000, 2000, 3000, float("inf")]
        made = await labelled(
            served, "rocketmq_topic_create_execution_time_milliseconds_count", "invocation_status", "is_system"
        )
        assert made == {("success", "false"): 1}


async def test_ends_of_transactions_are_counted_by_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        stats = served.controller._state.stats
        stats.transaction_ended("orders", 7_500, is_commit=True)
        stats.transaction_ended("orders", 1_500, is_commit=True)
        stats.transaction_ended("orders", 1_500, is_commit=False)
        assert await labelled(served, "rocketmq_commit_messages_total", "topic") == {("orders",): 2}
        assert await labelled(served, "rocketmq_rollback_messages_total", "topic") == {("orders",): 1}
        assert await labelled(served, "rocketmq_finish_message_latency_milliseconds_sum", "topic") == {("orders",): 8}
        ranges = await labelled(served, "rocketmq_finish_message_latency_milliseconds_bucket", "le")
        assert list(ranges.values()) == [1, 2, 2, 2, 2, 2, 2]


async def test_a_broker_says_whether_it_is_well(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        address = served.controller.metrics
        assert await page(address, "/health") == (200, "the broker runs\n")
        assert (await page(address, "/ready"))[0] == 200
        client, log = await served.client(), served.controller._state.store._writable().parts.log
        await with_topic(client, "orders")
        log.refuse_while_full(StoreFullError("91 % full"))
        assert (await client.send_message("orders")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await page(address, "/ready") == (503, "91 % full\n")
        assert await page(address, "/ready", "HEAD") == (503, "")  # as `wget --spider` asks
        codes = await labelled(served, "rocketmq_rpc_latency_milliseconds_count", "request_code", "response_code")
        assert codes["send_message_v2", "service_not_available"] == 1
        assert await page(address, "/health", "HEAD") == (200, "")
        log.refuse_while_full(None)
        assert (await client.send_message("orders")).code == ResponseCode.SUCCESS
        assert (await page(address, "/ready"))[0] == 200
        assert (await page(address, "/nope?x=1"))[0] == 404
        assert (await page(address, "/metrics", "POST"))[0] == 405
        assert (await page(address, "/" + "x" * 10_000))[0] == 400


async def test_a_full_disk_is_told_by_answer_log_ready_and_metric_and_ends_without_a_send(tmp_path: Path) -> None:
    files = FaultyFiles()

    keys = MEASURED | {"mapped_file_size_commit_log": 65_536, "flush_interval_consume_queue": 1}
    with heard("reput.store") as log:
        async with serving_broker(tmp_path / "store", files=files, **keys) as served:
            address, client = served.controller.metrics, await served.client()
            await with_topic(client, "orders")
            assert (await client.send_message("orders", bytes(40_000))).code == 0
            files.judge = fail_next("create", errno.ENOSPC, part="/commitlog/", times=1 << 30)
            for _ in range(3):  # the next file may have been made ahead
                refused = await client.send_message("orders", bytes(40_000))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (await page(address, "/ready"))[0] == 200, "small messages have room"
            while (refused := await client.send_message("orders", bytes(3000))).code == 0:
                pass
            status, reason = await page(address, "/ready")
            assert status == 503
            assert all("cannot create: 65536 bytes needed" in text for text in (reason, str(refused.remark)))
            await asyncio.to_thread(log.wait, "ERROR puts are refused: ")
            assert await labelled(served, "reput_storage_puts_refused", "reason") == {("full",): 1, ("failed",): 0}
            files.judge = no_objection
            await asyncio.to_thread(log.wait, "puts are accepted again")
            assert (await page(address, "/ready"))[0] == 200
            assert await labelled(served, "reput_storage_puts_refused", "reason") == {("full",): 0, ("failed",): 0}
            assert (await client.send_message("orders", bytes(40_000))).code == 0
    assert len(log.about(tmp_path)) == 2


async def test_a_broker_whose_sync_has_failed_is_not_ready(tmp_path: Path) -> None:
    disk = HeldDisk()

    controller = controller_of(tmp_path / "store", files=FaultyFiles(disk.judge), **SYNCED, **MEASURED)
    await controller.start()
    appends = controller._state.appends
    await appends.put(MessageExtBrokerInner("orders", 0, b"before", {}, 0, 0, 0, b"\x7f\0\0\1\0\0\0\1"))
    assert (await page(controller.metrics, "/ready"))[0] == 200
    disk.fail()
    with pytest.raises(StorePoisonedError) as failed:
        await appends.put(MessageExtBrokerInner("orders", 0, b"lost", {}, 0, 0, 0, b"\x7f\0\0\1\0\0\0\1"))
    assert await page(controller.metrics, "/ready") == (503, f"{failed.value}\n")
    assert (await page(controller.metrics, "/health"))[0] == 200
    _, metrics = await page(controller.metrics, "/metrics")
    assert re.search(r"^reput_storage_puts_refused\{.*failed.*\} 1.0$", metrics, re.MULTILINE)
    with pytest.raises(StoreError):
        await controller.stop()


async def test_a_broker_that_is_not_asked_for_metrics_takes_no_port_for_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        assert served.controller.metrics == ""


async def test_a_port_that_is_taken_stops_the_start_before_the_store_is_made(tmp_path: Path) -> None:
    taken = HttpServer()
    port = await taken.bind("127.0.0.1", 0)
    await taken.listen({})
    with pytest.raises(
        RemotingError, match=f"metricsPromExporterPort: cannot listen on 127.0.0.1:{port}: .* another process"
    ):
        async with serving_broker(tmp_path / "store", **(MEASURED | {"metrics_prom_exporter_port": port})):
            pass
    assert not (tmp_path / "store").exists()
    await taken.stop()


async def test_a_client_that_never_asks_is_left_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        host, _, port = served.controller.metrics.rpartition(":")
        with monkeypatch.context() as patch:
            patch.setattr("reput.transport.http._WITHIN_S", 0.05)
            reader, writer = await asyncio.open_connection(host, int(port))
            while not served.controller._pages._tasks:
                await asyncio.sleep(0)
        assert (await page(served.controller.metrics, "/health"))[0] == 200
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("text", ["zone", "zone:", "1a:b", "a:b:c"])
def test_a_label_is_a_name_and_a_value(text: str) -> None:
    if text == "zone:":
        assert BrokerConfig(metrics_label=text).metric_labels == {"zone": ""}
        return
    with pytest.raises(ConfigError, match=re.escape(f"metricsLabel={text}: expected NAME:VALUE")):
        BrokerConfig(metrics_label=text)
