"""Options of the commands that ask servers: name server, credentials, and one run of a client."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from reput.cli.display.output import write_error
from reput.cli.options import check_path

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.client.instance.session_credentials import SessionCredentials
    from reput.config.admin import AdminConfig
    from reput.transport.tls import ClientTls

_T = TypeVar("_T")

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="Name servers of the cluster to look at."
    ),
]
DEFAULT_NAMESRV = "127.0.0.1:9876"
Config = Annotated[
    str | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        envvar=["REPUT_CLIENT_CONFIG", "REPUT_ADMIN_CONFIG"],  # the second is its former name, kept for one release
        show_envvar=False,
        callback=check_path,
        help="A client's keys: accessKey, secretKey, tls.enable=true; else the file that REPUT_CLIENT_CONFIG names.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without it only what would be done is shown.")]
WithSystem = Annotated[bool, typer.Option("--all", help="RocketMQ's own, too.")]


#: Who asks, by the environment; it goes before the file.
_ENVIRONMENT = {
    "access_key": "REPUT_ACCESS_KEY", "secret_key": "REPUT_SECRET_KEY", "security_token": "REPUT_SECURITY_TOKEN",
}  # fmt: skip


def ask(namesrv: str, config: str | None, work: Callable[[AdminClient], Awaitable[_T]]) -> tuple[_T, int]:
    """Run requests of a client; their result, and the exit status of a command that shows it, as of `tell`.

    The client's log is silent, as an error says the same. `config` is the file of the option of this name.
    """
    from reput.admin.admin_client import AdminClient

    credentials, tls = access(config)

    async def run() -> tuple[_T, int]:
        async with AdminClient(namesrv, credentials=credentials, tls=tls) as client:
            return await work(client), tell(client)

    logging.getLogger("reput").addHandler(logging.NullHandler())
    return asyncio.run(run())


def tell(client: AdminClient) -> int:
    """Say which slaves have answered, and for which brokers nobody has; the exit status: 2 if there are such ones.

    What is shown then is of the others alone.
    """
    for note in client.notes():
        write_error(note)
    return 2 if client.silent else 0


def shown(value: object) -> object:
    """A value of a table or of fields; `unknown` for None."""
    return "unknown" if value is None else value


def access(config: str | None) -> tuple[SessionCredentials | None, ClientTls | None]:
    """Credentials and TLS of a client, by the file of the option `Config` and by the environment."""
    from reput.client.instance.session_credentials import SessionCredentials
    from reput.transport.tls import ClientTls

    chosen = _chosen(config)
    credentials = None
    if chosen.access_key is not None and chosen.secret_key is not None:
        credentials = SessionCredentials(chosen.access_key, chosen.secret_key, chosen.security_token)
    return credentials, ClientTls.of(chosen)


def _chosen(config: str | None) -> AdminConfig:
    """The file's keys; if the environment says who asks, it says all of that."""
    from reput.config.admin import AdminConfig
    from reput.errors import ConfigError
    from reput.files import DISK

    chosen = AdminConfig()
    if config is not None:
        try:
            text = DISK.read_bytes(config).decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{config}: expected text in UTF-8") from None
        chosen = AdminConfig.from_properties(text, config)
    given: dict[str, Any] = {name: os.environ.get(variable) or None for name, variable in _ENVIRONMENT.items()}
    if any(given.values()):
        missing = [_ENVIRONMENT[name] for name in ("access_key", "secret_key") if given[name] is None]
        if missing:
            raise ConfigError(f"the environment says who asks, and {' and '.join(missing)} is missing")
        chosen = replace(chosen, **given)
    return chosen
