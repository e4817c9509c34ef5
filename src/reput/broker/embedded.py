"""Broker: a broker in a thread of this process, for programs and tests."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Self, TypeVar, Unpack
from weakref import WeakSet

from reput.broker.broker import BrokerController
from reput.broker.state import BrokerState
from reput.config.arguments import check_function, check_path, check_whole
from reput.config.broker import broker_configs
from reput.errors import ConfigError, StoreStateError
from reput.log.object_storage import check_on_disk
from reput.transport.loop import run

if TYPE_CHECKING:
    from reput.config.broker_options import BrokerOptions

_T = TypeVar("_T")


class Broker:
    """A running broker with a name server of its own, unless `namesrv_addr` names another one.

    Made by `start`; a context manager that stops it.

    Attributes:
        address: "host:port" of the broker.
        namesrv: "host:port" of its name servers, separated by `;`: what clients are given.
    """

    def __init__(self, controller: BrokerController) -> None:
        if isinstance(controller, str | os.PathLike):
            name = type(self).__name__
            raise ConfigError(f"{name}({controller!r}) is no running broker: write {name}.start({controller!r})")
        self._controller = controller
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._thread = Thread(target=self._run, name="reput-broker", daemon=True)
        self._process = os.getpid()
        self.address = ""
        self.namesrv = ""

    @classmethod
    def start(
        cls, path: str | os.PathLike[str], *, port: int = 0, namesrv_port: int = 0, **options: Unpack[BrokerOptions]
    ) -> Self:
        """Serve a store directory; clients can be served when this returns.

        It listens on this machine alone, until `broker_ip1`, the address for clients, is another one, or
        `bind_address` names the address.

        Args:
            path: The store's directory; it is made if nothing is there.
            port: Of the broker; 0 takes a free one.
            namesrv_port: Of its name server; not used with the option `namesrv_addr`.
            options: RocketMQ's keys of broker and store, in snake_case or camelCase; `BrokerOptions` has their types.

        Raises:
            ConfigError: An unknown key, or a wrong value.
            RemotingError: A port is taken.
            ReputError: The store cannot be opened; see `MessageStore.open`.
        """
        check_path("path", path)
        for name, one in {"port": port, "namesrv_port": namesrv_port}.items():
            check_whole(name, one, 0, (1 << 16) - 1)
        config, store_config, _ = broker_configs({"listen_port": port, **options})
        check_on_disk(path)
        root = os.path.abspath(os.path.expanduser(path))
        broker = cls(BrokerController(root, config, store_config, namesrv_port=namesrv_port))
        broker._thread.start()
        try:
            broker._started.result()
        except BaseException:
            broker._thread.join()
            raise
        _open.add(broker)
        return broker

    def _run(self) -> None:
        try:
            run(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        controller = self._controller
        await controller.start()
        self.address, self.namesrv = controller.address, controller.namesrv
        self._started.set_result(None)
        try:
            await self._stopped.wait()
        finally:
            await controller.stop()

    def in_loop(self, function: Callable[[BrokerState], _T]) -> _T:
        """The result of a function of the broker's state, called in the broker's loop."""
        check_function("function", function)
        loop = self._loop
        if loop is None or self._ended.done() or sys.is_finalizing() or self._process != os.getpid():
            raise StoreStateError("this broker is stopped")

        async def called() -> _T:
            return function(self._controller.state)

        return asyncio.run_coroutine_threadsafe(called(), loop).result()

    def close(self) -> None:
        """Answer what was accepted, and close the store clean. Closing again does nothing.

        One that nobody has closed is closed when the program's main thread ends. A close after that does nothing, nor
        does one in a process that was forked from the broker's own.

        Raises:
            ReputError: Something could not be made durable; the next start recovers.
        """
        if sys.is_finalizing() or self._process != os.getpid():
            return
        if self._loop is not None and self._stopped is not None and not self._ended.done():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._ended.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Broker({self.address}, namesrv={self.namesrv})"


_open: WeakSet[Broker] = WeakSet()


def _close_all() -> None:
    for broker in list(_open):
        broker.close()


# Not by `atexit`: what it calls comes behind the end of all thread pools, and a broker without them closes no store.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
