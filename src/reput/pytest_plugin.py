"""pytest plugin: the fixture `reput_broker`, a broker for a test, which needs no Java and no network."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import pytest

from reput.extras import require_store

if TYPE_CHECKING:
    from reput.testing import LocalBroker


class ShownWarnings(logging.Handler):
    """Shows warnings on stderr at once: pytest keeps what is printed and logged until a test has failed."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(logging.WARNING)
        self._config = config

    def emit(self, record: logging.LogRecord) -> None:
        """Called by a logger."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        streams = sys.stdin, sys.stdout, sys.stderr  # a test may have its own, as with typer's CliRunner
        try:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                print(f"\n{record.getMessage()}", file=sys.stderr, flush=True)
        except Exception:  # as every handler of a log: no test fails since nobody sees a line
            self.handleError(record)
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams


def pytest_configure(config: pytest.Config) -> None:
    """Show that kernels are compiled, which takes a minute once a version, and where they are kept."""
    shown = ShownWarnings(config)
    for logger in map(logging.getLogger, ("reput.kernels", "reput.cache")):
        logger.addHandler(shown)
        config.add_cleanup(partial(logger.removeHandler, shown))


@pytest.fixture
def reput_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker on free ports of this machine, with a store that goes with the test: `reput_broker.namesrv`.

    Clients of every language may use it. Topics are made by the first message. What else it can: `reput.testing`.
    """
    require_store("the fixture reput_broker")
    from reput.testing import broker  # here: pytest loads plugins at each start, and this takes a second

    with broker(str(tmp_path_factory.mktemp("reput-broker"))) as one:
        yield one
