"""Requests that write the broker's state files, with members and values of any kind, and what must be there later."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case, parse_properties
from reput.config.rocketmq_config import keys_of
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from tests.support.broker import Client, Served, consumer, texts
from tests.support.pop import pop_command

#: Values that JSON has, and a file of fastjson's may not take as they are.
ODD: tuple[str, ...] = (
    '{"$ref":"$.y"}', '{"$ref":"$"}', '{"$ref":".."}', '{"$ref":1}', "1" * 41, "-" + "9" * 40, "1e400", "NaN",
    "Infinity",
    "[" * 99 + "]" * 99, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101, '"\\ud800"', '"\\u0000"', "null",
    "[]", "[1,2]", "{}", '{"1":2}', "true", "1.5", '""',
)  # fmt: skip
_NUMBERS = (0, 1, 2, -1, 1000, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, (1 << 63) - 10**9, -(1 << 63), 1 << 63)
_TEXTS = (
    "v", "", " ", "$ref", "\0", "\n", '"', "\\", "{", "true", "a=b", "a@b", "%", "é", "\U0001f680", "x" * 300,
)  # fmt: skip
#: Keys with which a request would change where the tests' broker is, or what it checks.
_KEPT_KEYS = {"brokerRole", "brokerName", "brokerClusterName", "namesrvAddr"}
#: The broker has these keys, so that it keeps filters and users.
KEYS: dict[str, Any] = {"enable_property_filter": True, "authenticationMetadataProvider": "local"}
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"(?!\s*:)|-?\d+(?![\d"]*\s*:)|true|false|null')


def odd_object(chance: Random, *members: str) -> str:
    """A JSON object with these members, and others of any name and value."""
    names = ["x", "$ref", "others", "groupRetryPolicy", "attributes", "dataVersion", "subscriptionDataSet"]
    more = [f'"{chance.choice(names)}":{chance.choice(ODD)}' for _ in range(chance.randrange(3))]
    both = [*members, *more]
    chance.shuffle(both)
    return "{" + ",".join(both) + "}"


def damaged_state(chance: Random, data: bytes) -> bytes:
    """A state file in which a value has become another one of any kind."""
    places = list(_VALUE.finditer(data))
    if not places:
        return chance.choice(ODD).encode()
    place = chance.choice(places)
    return data[: place.start()] + chance.choice(ODD).encode() + data[place.end() :]


class OddState:
    """State that requests have made, by the kind of request; `write` and `check` are given a client of the broker.

    Attributes:
        made: By kind, the names of those that were answered SUCCESS.
        requests: How many there were.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._life = 0
        self.made: dict[str, dict[Any, Any]] = defaultdict(dict)
        self.requests = 0

    async def write(self, served: Served, client: Client, count: int) -> None:
        """Send `count` requests, each of any kind."""
        self._life += 1
        kinds = (
            self._group, self._groups, self._topics, self._topic, self._mode, self._offset, self._order, self._filter,
            self._key_value, self._user, self._key,
        )  # fmt: skip
        for number in range(count):
            await self._chance.choice(kinds)(served, client, f"n{self._life}-{number}")
            self.requests += 1

    async def _group(self, served: Served, client: Client, name: str) -> None:
        body = odd_object(self._chance, f'"groupName":"{name}"')
        if (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body.encode())).code == 0:
            self.made["groups"][name] = None

    async def _groups(self, served: Served, client: Client, name: str) -> None:
        body = '{"groupConfigList":[' + odd_object(self._chance, f'"groupName":"{name}"') + "]}"
        if (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body.encode())).code == 0:
            self.made["groups"][name] = None

    async def _topics(self, served: Served, client: Client, name: str) -> None:
        body = '{"topicConfigList":[' + odd_object(self._chance, f'"topicName":"{name}"') + "]}"
        if (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body.encode())).code == 0:
            self.made["topics"][name] = None

    async def _topic(self, served: Served, client: Client, name: str) -> None:
        answer = await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102", readQueueNums=self._number(),
            writeQueueNums=self._number(), perm=self._number(), topicFilterType="SINGLE_TAG",
            topicSysFlag=self._number(), order=self._chance.choice((True, False, "x")), attributes=self._text(),
        )  # fmt: skip
        if answer.code == 0:
            self.made["topics"][name] = None

    async def _mode(self, served: Served, client: Client, name: str) -> None:
        body = odd_object(self._chance, '"topic":"orders"', f'"consumerGroup":"{name}"', '"mode":"POP"')
        if (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())).code == 0:
            self.made["modes"][name] = None

    async def _offset(self, served: Served, client: Client, name: str) -> None:
        offset, name = self._number(), self._chance.choice([name, *self.made["groups"]])
        answer = await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=name, topic="orders", queueId=0, commitOffset=offset
        )
        if answer.code == 0 and offset in (0, 1):
            self.made["offsets"][f"orders@{name}"] = {"0": offset}
        elif answer.code == 0:
            self.made["offsets"].pop(f"orders@{name}", None)

    async def _order(self, served: Served, client: Client, name: str) -> None:
        """A pop in order, and another time for its message."""
        [popping] = client.begin_all([pop_command("orders", name, order=True)])
        fields = (await popping).ext_fields or {}
        if "startOffsetInfo" not in fields:
            return
        start = fields["startOffsetInfo"].split(" ")[2]
        extra = f"{start} {fields['popTime']} {fields['invisibleTime']} 999 0 broker-a 0 0"
        answer = await client.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, consumerGroup=name, topic="orders", queueId=0, extraInfo=extra,
            offset=0, invisibleTime=self._number(),
        )  # fmt: skip
        if answer.code == 0:
            self.made["orders"][name] = None

    async def _filter(self, served: Served, client: Client, name: str) -> None:
        wanted = consumer(name, "orders")
        text = self._chance.choice(("a > 1", "a = '" + self._text().replace("'", "") + "'", "a in ('b')", self._text()))
        wanted["subscriptionDataSet"][0] |= {"expressionType": "SQL92", "subString": text, "subVersion": self._number()}
        body = json.dumps({"clientID": name, "consumerDataSet": [wanted], "producerDataSet": []})
        if (await client.ask(RequestCode.HEART_BEAT, body.encode())).code == 0:
            self.made["filters"][name] = None

    async def _key_value(self, served: Served, client: Client, name: str) -> None:
        fields = {"namespace": self._text() or "ns", "key": self._text() + name, "value": self._text()}
        answer = await _of_name_server(served, RequestCode.PUT_KV_CONFIG, **fields)
        if answer.code == 0:
            self.made["key values"][fields["namespace"], fields["key"]] = fields["value"]

    async def _user(self, served: Served, client: Client, name: str) -> None:
        fields = {
            "password": self._chance.choice((self._text(), "\ud800")),
            "userType": self._chance.choice(("Normal", "Super", "x")),
        }
        named = name + self._chance.choice(("", self._text()))
        answer = await client.ask(RequestCode.AUTH_CREATE_USER, json.dumps(fields).encode(), username=named)
        if answer.code == 0:
            self.made["users"][named] = fields["password"]

    async def _key(self, served: Served, client: Client, name: str) -> None:
        """A change of the broker's keys: it counts at the next start that is given the file."""
        known = [camel_case(one) for kind in (BrokerConfig, MessageStoreConfig) for one in keys_of(kind)]
        key = self._chance.choice([one for one in known if one not in _KEPT_KEYS])
        value = str(self._chance.choice((self._number(), self._text(), "true", "false")))
        text = f"{key}={value}".encode("utf-8", "surrogatepass")
        if (await client.ask(RequestCode.UPDATE_BROKER_CONFIG, text)).code == 0:
            self.made["keys"][key] = value

    def _number(self) -> int:
        return self._chance.choice(_NUMBERS)

    def _text(self) -> str:
        return self._chance.choice(_TEXTS)

    async def check(self, served: Served, client: Client, *, after_kill: bool = False) -> None:
        """All that was answered SUCCESS is there; offsets, which are written by time, where nothing was killed."""

        async def body_of(code: RequestCode) -> Any:
            return json.loads((await client.ask(code)).body)

        groups = (await body_of(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
        topics = (await body_of(RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
        modes = (await body_of(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))["messageRequestModeMap"].get("orders", {})
        for kind, found in (("groups", groups), ("topics", topics), ("modes", modes)):
            lost = self.made[kind].keys() - found.keys()
            assert not lost, f"{kind} that were answered SUCCESS are gone: {sorted(lost)}"
        if not after_kill:
            offsets = (await body_of(RequestCode.GET_ALL_CONSUMER_OFFSET))["offsetTable"]
            assert self.made["offsets"].items() <= offsets.items()
        for (namespace, key), value in self.made["key values"].items():
            answer = await _of_name_server(served, RequestCode.GET_KV_CONFIG, namespace=namespace, key=key)
            assert (answer.ext_fields or {}).get("value") == value, (namespace, key, value, answer)
        for name, password in self.made["users"].items():
            answer = await client.ask(RequestCode.AUTH_GET_USER, username=name)
            assert answer.body, f"the user {name!r} is gone"
            assert json.loads(answer.body)["password"] == password.encode("utf-8", "replace").decode()
        file = Path(served.controller.state.store.path) / "config/broker.properties"
        if file.exists():
            broker_configs(parse_properties(file.read_text(), str(file)))


async def _of_name_server(served: Served, code: int, **fields: object) -> RemotingCommand:
    client = RemotingClient()
    try:
        return await client.call(served.controller.namesrv, RemotingCommand(code, ext_fields=texts(fields)))
    finally:
        client.close()
