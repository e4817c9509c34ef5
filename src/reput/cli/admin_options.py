"""What the commands of `reput admin` share: where the name server is, and one run of a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient

_T = TypeVar("_T")

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="Name servers of the cluster to look at."
    ),
]
DEFAULT_NAMESRV = "127.0.0.1:9876"
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without it only what would be done is shown.")]
WithSystem = Annotated[bool, typer.Option("--all", help="RocketMQ's own, too.")]


def ask(namesrv: str, work: Callable[[AdminClient], Awaitable[_T]]) -> _T:
    """What some requests of a client result in; its log is silent, as an error says the same."""
    from reput.admin.admin_client import AdminClient

    async def run() -> _T:
        async with AdminClient(namesrv) as client:
            return await work(client)

    logging.getLogger("reput").addHandler(logging.NullHandler())
    return asyncio.run(run())
