"""One Java process a RocketMQ version for the whole run: a start costs a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache import VERSIONS, Apache
from tests.interop.witness import COMPARED


@pytest.fixture(scope="session", params=VERSIONS)
def apache(request: pytest.FixtureRequest) -> Iterator[Apache]:
    with Apache(request.param) as started:
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The counts that docs/design/interop.md speaks of."""
    if COMPARED:
        terminalreporter.write_line(
            "compared with Apache RocketMQ: " + ", ".join(f"{n} {what}" for what, n in COMPARED.items())
        )
