"""Followers: the log of each broker of a cluster, into a store of its own below one folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from threading import Event as Flag
from threading import Thread

from reput.client.instance.mq_client_api import checked
from reput.client.instance.name_servers import WITH_LOST, no_broker
from reput.client.instance.topic_route import nobody_there, serving, together
from reput.errors import RemotingError, ReputError
from reput.events import Event
from reput.formats.paths import topic_folder_name
from reput.remoting.body import decode_body
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.route_bodies import ClusterInfo
from reput.replication.follower import Follower, FollowState
from reput.store.message_store import MessageStore
from reput.transport.blocking_client import BlockingConnection
from reput.transport.tls import ClientTls

logger = logging.getLogger("reput.replication")

#: Seconds between two looks for brokers that have come, and for masters that are others now.
_LOOK_S = 10.0
_ANSWER_S = 3.0

#: Opens the store of a path; makes it with the file sizes of a broker, "host:port".
OpenStore = Callable[[str, str], MessageStore]
MakeFollower = Callable[[MessageStore, str, Callable[[FollowState], None]], Follower]


def broker_addresses(name_servers: Sequence[str], tls: ClientTls | None = None) -> dict[str, str | None]:
    """The address of who serves each broker name (`topic_route.serving`), by all name servers; None for a lost one.

    `tls`: how to talk TLS to name servers; None for the plain protocol.

    Raises RemotingError if no name server answers.
    """
    answers: list[ClusterInfo] = []
    failure = RemotingError("no name server was given")
    for address in name_servers:
        try:
            connection = BlockingConnection(address, tls)
            try:
                command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, ext_fields=dict(WITH_LOST))
                [opaque] = connection.send(command, timeout_s=_ANSWER_S)
                answer = checked(address, connection.answer(opaque, _ANSWER_S))
            finally:
                connection.close()
        except RemotingError as error:
            failure = error
            continue
        answers.append(decode_body(ClusterInfo, answer.body))
    if not answers:
        raise failure
    brokers = together(data for one in answers for data in one.broker_addr_table.values())
    return {name: serving(one.broker_addrs) for name, one in brokers.items()}


class Followers:
    """Follows all brokers of a cluster, also those that come later, each in a thread, into FOLDER/BROKER_NAME.

    An error that ends one of them leaves the others alone; it is logged, and `failures` has it.

    Args:
        folder: Of the stores.
        name_servers: "host:port" of each.
        open_store: Opens a store.
        make: Makes the follower of a store, a broker's address, and what is to be called after each step.
        on_state: Called with a broker's name after each step, in its thread.
        tls: How to talk TLS to name servers; None for the plain protocol.

    Attributes:
        states: How far each is, by broker name.
        failures: Why some have ended, by broker name.
    """

    def __init__(
        self,
        folder: str,
        name_servers: Sequence[str],
        open_store: OpenStore,
        make: MakeFollower,
        on_state: Callable[[str, FollowState], None],
        tls: ClientTls | None = None,
    ) -> None:
        self._folder, self._name_servers = folder, tuple(name_servers)
        self._open_store, self._make, self._on_state, self._tls = open_store, make, on_state, tls
        self._threads: dict[str, tuple[str, Flag, Thread]] = {}
        self._told_lost: set[str] = set()
        self.states: dict[str, FollowState] = {}
        self.failures: dict[str, Exception] = {}

    def run(self, stop: Flag, *, once: bool = False) -> None:
        """Follow until `stop` is set; with `once` until each has all that its broker had at the last look.

        Raises RemotingError if no name server answers at the start; with `once` also if it knows no broker.
        """
        try:
            brokers = broker_addresses(self._name_servers, self._tls)
            if once and not brokers:
                raise RemotingError(no_broker(self._name_servers))
            self._begin(brokers, once)
            while not once and not stop.wait(_LOOK_S):
                try:
                    self._begin(broker_addresses(self._name_servers, self._tls), once)
                except RemotingError as error:
                    logger.warning(Event("no name server answers", error=error))
            while once and not stop.is_set() and any(thread.is_alive() for _, _, thread in self._threads.values()):
                stop.wait(0.05)
        finally:
            for _, flag, _ in self._threads.values():
                flag.set()
            for _, _, thread in self._threads.values():
                thread.join()

    def _begin(self, brokers: dict[str, str | None], once: bool) -> None:
        """Follow brokers that are not followed yet, or whose master is another one now; a lost one gets a line."""
        for name, address in brokers.items():
            before = self._threads.get(name)
            if address is None:
                if before is None:
                    self._lost(name, once)
                continue
            if before is not None:
                known, flag, thread = before
                state = self.states.get(name)
                if known == address or name in self.failures or (state is not None and state.is_connected):
                    continue
                flag.set()
                thread.join()
            elif topic_folder_name(name.encode(errors="replace")) != name:  # the network may say anything
                self._failed(name, RemotingError(f"{name!r} is no name of a folder; follow {address} by --master"))
                continue
            flag = Flag()
            thread = Thread(target=self._follow, args=(name, address, flag, once), name=f"reput-follow-{name}")
            self._threads[name] = address, flag, thread
            thread.start()

    def _follow(self, name: str, address: str, flag: Flag, once: bool) -> None:
        def note(state: FollowState) -> None:
            self.states[name] = state
            self._on_state(name, state)

        try:
            with self._open_store(os.path.join(self._folder, name), address) as store:
                follower = self._make(store, address, note)
                follower.run(flag, once=once)
                store.wait_dispatched()
                note(follower.state)
        except ReputError as error:
            self._failed(name, error)
        except Exception as error:  # a bug, which is not to look like an end without errors
            logger.exception(Event("a broker is not followed any more", broker=name))
            self.failures[name] = error

    def _lost(self, name: str, once: bool) -> None:
        """Say that nobody of a broker name is there: with `once` that is a failure, else it may come back."""
        error = RemotingError(nobody_there([name]))
        if once:
            self._failed(name, error)
        elif name not in self._told_lost:
            logger.warning(Event("a broker is not followed yet", broker=name, error=error))
            self._told_lost.add(name)

    def _failed(self, name: str, error: ReputError) -> None:
        if name not in self.failures:
            logger.error(Event("a broker is not followed any more", broker=name, error=error))
        self.failures[name] = error
