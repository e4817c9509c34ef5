"""Metrics that a broker gives to a monitoring system."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from reput.formats.pop_messages import CheckPointKey
from tests.support.broker import LONG_MS, Served, consumer, with_topic
from tests.support.pop import ack, handles, pop

MEASURED = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0, "bind_address": "127.0.0.1"}


async def page(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body of an answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


async def families(served: Served) -> list[Metric]:
    """All metrics, as Prometheus reads them."""
    status, text = await page(served.controller.metrics, "/metrics")
    assert status == 200
    return list(text_string_to_metric_families(text))


def labels_of(metrics: Iterable[Metric]) -> dict[str, set[str]]:
    """The labels of each name."""
    return {one.name: set(one.labels) for family in metrics for one in family.samples}


async def let_happen(served: Served) -> None:
    """Do once all that a broker counts, so that it has each of its metrics, but for slaves and dead letters."""
    client = await served.client()
    await with_topic(client, "orders")
    await client.send_message("orders", b"a", properties={"TIMER_DELAY_MS": "1"})
    await client.heartbeat("c", consumer("g", "orders"), producers=["p"])
    assert (await client.pull("orders", hold_ms=LONG_MS)).code == 0
    ((_, topic, handle),) = handles(await pop(client, "orders"))
    assert (await ack(client, topic, handle)).code == 0
    half = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "AB" * 16}
    assert (await client.send_message("orders", properties=half)).code == 0
    stats, pops = served.controller._state.stats, served.controller._services.pop.stats
    for is_commit in (True, False):
        stats.transaction_ended("orders", 1, is_commit=is_commit)
    key = CheckPointKey("orders", "g", 0, 0, 0, "broker-a")
    pops.inc_got(key, "CK", 0)
    pops.inc_retried(key, "PUT_OK")


async def labelled(served: Served, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by some of its labels."""
    return {
        tuple(one.labels[label] for label in labels): one.value
        for family in await families(served)
        for one in family.samples
        if one.name == name
    }
