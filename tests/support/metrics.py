"""What a broker answers to a monitoring system."""

from __future__ import annotations

import asyncio

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker import Served

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


async def labelled(served: Served, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by some of its labels."""
    return {
        tuple(one.labels[label] for label in labels): one.value
        for family in await families(served)
        for one in family.samples
        if one.name == name
    }
