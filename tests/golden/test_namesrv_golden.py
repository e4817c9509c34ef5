"""What RocketMQ's brokers and clients sent to a name server of 4.9.7, asked of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reput.remoting.command import RemotingCommand, decode_command
from tests.support.namesrv import asked_name_server

FRAMES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "remoting/frames.json").read_text())["vectors"]


def requests(code: int) -> list[RemotingCommand]:
    """The recorded requests with a code."""
    frames = [one["hex"] for one in FRAMES if one["code"] == code and one["name"].startswith("captured request")]
    assert frames
    return [decode_command(bytes.fromhex(frame)) for frame in frames]


async def test_recorded_requests_get_the_answers_of_rocketmq(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        (registration,) = requests(103)
        data = {"brokerAddrs": {"0": "127.0.0.1:30911"}, "brokerName": "broker-a", "cluster": "DefaultCluster"}
        registered = json.loads(registration.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
        assert (await asked.ask(registration)).code == 0

        (kept,) = requests(100)
        assert (await asked.ask(kept)).code == 0
        assert (await asked.ask(101, namespace="NSX", key="a")).ext_fields == {"value": "b"}
        for listed in requests(206):
            assert json.loads((await asked.ask(listed)).body) == {"topicList": [*registered]}
        for info in requests(106):
            assert json.loads((await asked.ask(info)).body) == {
                "brokerAddrTable": {"broker-a": data | {"enableActingMaster": False}},
                "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
            }
        topics = {**registered, "unknown": None}
        for request in requests(105):
            for topic in topics:
                request.ext_fields = {**(request.ext_fields or {}), "topic": topic}
                answer = await asked.ask(request)
                if topic == "unknown":
                    assert answer.code == 17
                    continue
                config = registered[topic]
                names = ("perm", "readQueueNums", "topicSysFlag", "writeQueueNums")
                assert json.loads(answer.body) == {
                    "brokerDatas": [data | {"enableActingMaster": False}],
                    "filterServerTable": {},
                    "queueDatas": [{"brokerName": "broker-a"} | {name: config[name] for name in names}],
                }
        (wiped,), (added,) = requests(205), requests(327)
        count = str(len(registered))
        assert (await asked.ask(wiped)).ext_fields == {"wipeTopicCount": count}
        assert (await asked.ask(added)).ext_fields == {"addTopicCount": count}
        (deleted,) = requests(216)
        assert (await asked.ask(deleted)).code == 0
        (unregistered,) = requests(104)
        assert (await asked.ask(unregistered)).code == 0
        assert json.loads((await asked.ask(206)).body) == {"topicList": []}
