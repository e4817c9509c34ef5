"""The example of docs/several-brokers.md: a name server and two brokers as plain processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from reput.remoting.codes import RequestCode
from tests.support.asking import ask
from tests.support.broker import make_topic
from tests.support.several_brokers import SCRIPT, SeveralBrokers, is_running

PAGE = Path(__file__).parents[2] / "docs/several-brokers.md"


def brokers_of(namesrv: str, topic: str) -> dict[str, str]:
    """The brokers of a topic's route, and their addresses."""
    answer = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    datas = json.loads(answer.body.replace(b"{0:", b'{"0":'))["brokerDatas"]
    return {one["brokerName"]: one["brokerAddrs"]["0"] for one in datas}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_three_serve_one_topic_and_ctrl_c_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    brokers = SeveralBrokers(tmp_path / "stores")
    with brokers.script() as process:
        assert process.stdout is not None
        ready = [process.stdout.readline() for _ in range(3)]
        assert [line.split()[0] for line in ready] == ["ready"] * 3, ready
        for name in ("broker-a", "broker-b"):
            make_topic(brokers.address(name), "orders", 4)
        expected = {name: brokers.address(name) for name in ("broker-a", "broker-b")}
        assert brokers_of(brokers.address("namesrv"), "orders") == expected
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as Ctrl-C does
        else:
            process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        assert not is_running(process.pid)


def test_a_name_that_is_none_of_the_three_is_refused(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "stores").script("broker-c") as process:
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (2, "broker-c: there are namesrv, broker-a and broker-b\n")


def test_the_page_shows_the_example_as_it_is() -> None:
    assert f"sh examples/{SCRIPT.name}\n" in PAGE.read_text()
