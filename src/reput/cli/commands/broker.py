"""`reput broker`: the broker."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from reput.cli.options import BrokerConf, Json, LogLevel, Settings, Store, broker_and_store_config
from reput.errors import ConfigError


def broker(
    store: Store,
    *,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="The broker's port, in place of listenPort (10911).")
    ] = None,
    namesrv_port: Annotated[
        int | None,
        typer.Option("--namesrv-port", min=0, max=65_535, help="The port of its own name server, in place of 9876."),
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", metavar="HOST:PORT;...", help="Register at these name servers, and run none."),
    ] = None,
    config: BrokerConf = None,
    settings: Settings,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> int:
    """Serve a store to RocketMQ's clients, until Ctrl-C or SIGTERM.

    It listens on this machine alone, until brokerIP1 names another address for clients, or bindAddress an address to
    listen on. A name server comes with it, unless --namesrv or a broker.conf names another one. When clients can be
    served, one line on stdout has the addresses: `ready broker=127.0.0.1:10911 namesrv=127.0.0.1:9876`. Port 0 takes a
    free one. Messages are synced before they are acknowledged, unless --set or the file of --config names
    flushDiskType=ASYNC_FLUSH: what a file does not name has reput's default (`reput config`). Logs go to stderr, as
    JSON with --json.

    Example:
      reput broker store --set flushDiskType=ASYNC_FLUSH --set brokerIP1=10.0.0.5
    """
    from reput.broker.broker import BrokerController
    from reput.cli.serving import Serving, listens, serve

    more = {} if port is None else {"listenPort": str(port)}
    more |= {} if namesrv is None else {"namesrvAddr": namesrv}
    chosen, chosen_store, ignored = broker_and_store_config(settings, config, more)
    if namesrv_port is not None and chosen.name_servers:
        raise ConfigError(f"--namesrv-port has no meaning with the name servers {';'.join(chosen.name_servers)}")
    own_port: dict[str, Any] = {} if namesrv_port is None else {"namesrv_port": namesrv_port}

    async def start() -> Serving:
        controller = BrokerController(store, chosen, chosen_store, config_path=config, **own_port)
        await controller.open()
        return Serving(
            {"broker": controller.address, "namesrv": controller.namesrv},
            controller.stop,
            {"flushDiskType": chosen_store.flush_disk_type}
            | _other_root(store, chosen_store.store_path_root_dir)
            | listens(chosen.bind_address, "brokerIP1=ADDRESS, by which they find the broker"),
            controller.register,
        )

    own_defaults = {} if config is None else chosen_store.own_defaults() | chosen.own_defaults()
    return serve(start, log_level=log_level, as_json=as_json, ignored=ignored, own_defaults=own_defaults)


def _other_root(store: str, named: str) -> dict[str, str]:
    """Field of the line `started` if a configuration names another store than the command, which counts."""
    from reput.config.message_store import MessageStoreConfig

    is_named = named != MessageStoreConfig().store_path_root_dir
    is_other = is_named and os.path.realpath(os.path.expanduser(named)) != os.path.realpath(store)
    return {"storePathRootDir": f"{store}, and not {named}, as --config or --set says"} if is_other else {}
