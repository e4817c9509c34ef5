"""Answers in tests have most of a minute where the product gives them three seconds.

A machine that stands still for some seconds is no finding. A test of a time that is over sets its own, a short one, or
is `impatient`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any, cast

import pytest

from reput.client.instance.mq_client_api import MQClientAPI
from reput.client.producing.producer import Producer
from reput.transport.blocking_client import BlockingClient
from reput.transport.client import RemotingClient

#: Less than `tests.support.async_tests.run` waits, so that who has waited in vain tells for what.
PATIENCE_S = 50.0
#: Calls whose last argument says how long to wait, unless told otherwise.
_CALLS = (RemotingClient.call, BlockingClient.call, MQClientAPI.call)
#: Times of modules that end a wait for what comes, or a turn that a machine that stands still would cut short.
_TIMES = (
    ("reput.transport.connection", "_TURN_S"),
    ("reput.transport.client", "_CONNECT_S"),
    ("reput.transport.blocking_client", "_CONNECT_S"),
    ("reput.client.instance.client_instance", "_LEAVE_S"),
    ("reput.client.consuming.consumer_api", "_OFFSET_S"),
    ("reput.client.instance.name_servers", "_CALL_S"),
    ("reput.admin.admin_client", "_CALL_S"),
    ("reput.admin.all_name_servers", "_CALL_S"),
    ("reput.broker.broker_to_client", "_CALL_S"),
    ("reput.broker.broker_to_client", "_STATUS_S"),
    ("reput.client.producing.producer", "_TRACE_S"),
    ("reput.client.instance.traces", "_CLOSE_S"),
)


#: Times of a follower's questions to its master. It asks again, so a test that is patient needs no more of them.
_FOLLOWER = (
    ("reput.replication.master", "_ANSWER_S"),
    ("reput.replication.followers", "_ANSWER_S"),
    ("reput.replication.ha_stream", "_CONNECT_S"),
)
#: Times that tests leave as they are, each with the reason.
_KEPT = {
    ("reput.client.consuming.consumer_api", "PULL_S"): "twice as long as a broker holds a pull",
    ("reput.spark.wire.pulls", "PULL_S"): "the same one",
    ("reput.broker.registration", "_UNREGISTER_S"): "a name server that stands still would hold each stop of a broker",
    ("reput.spark.wire.sender", "_SEND_S"): "a task's own, in a process of Spark, which has no conftest",
}
#: Methods whose last argument says how long an answer is waited for, or a connection.
_WAITS = {"ask", "call", "answer", "send", "create_connection"}


def waits_of(module: str, source: str) -> set[tuple[str, str]]:
    """Constants of a module that say how long an answer is waited for, as pairs of module and name."""
    return {
        (module, name.id)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _WAITS
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        for name in ast.walk(argument)
        if isinstance(name, ast.Name) and name.id.isupper() and name.id.endswith("_S")
    }


def known_waits() -> set[tuple[str, str]]:
    """All that this module knows, with those that stay as they are."""
    return {*_TIMES, *_FOLLOWER, *_KEPT}


def be_patient() -> None:
    """Let all of this process wait so long from now on."""
    _wait(PATIENCE_S, setattr, _TIMES)


def impatient(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Let this test wait no longer than so for who does not answer."""
    _wait(seconds, patch.setattr, (*_TIMES, *_FOLLOWER))


def _wait(seconds: float, set_value: Callable[[Any, str, Any], None], times: tuple[tuple[str, str], ...]) -> None:
    for module, name in times:
        assert 0 < getattr(import_module(module), name) <= PATIENCE_S, (module, name)
        set_value(import_module(module), name, seconds)
    for call in _CALLS:
        function = cast("FunctionType", call)
        *others, timeout_s = function.__defaults__ or ()
        assert 0 < timeout_s <= PATIENCE_S, function
        set_value(function, "__defaults__", (*others, seconds))
    options = cast("FunctionType", Producer.__init__).__kwdefaults__ or {}
    assert 0 < options["timeout"] <= PATIENCE_S
    set_value(Producer.__init__, "__kwdefaults__", {**options, "timeout": seconds})
