"""`reput namesrv`: the name server."""

from __future__ import annotations

from typing import Annotated

import typer

from reput.cli.options import Json, LogLevel, Settings, check_path, parse_pairs


def namesrv(
    *,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="The port, in place of listenPort (9876).")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", callback=check_path, help="RocketMQ's namesrv.conf: keys of the configuration."
        ),
    ] = None,
    settings: Settings,
    log_level: LogLevel = "info",
    as_json: Json = False,
) -> int:
    """Run a name server, until Ctrl-C or SIGTERM.

    Brokers register here, and clients ask here for the brokers and queues of a topic: reput's and Apache RocketMQ's.
    It listens on this machine alone, until bindAddress names another address: 0.0.0.0 is on all addresses. When clients
    can be served, one line on stdout has the address: `ready namesrv=127.0.0.1:9876`. Port 0 takes a free one.
    Logs go to stderr, as JSON with --json.

    Example:
      reput namesrv --port 0 --set kvConfigPath=/tmp/kvConfig.json
    """
    from reput.cli.serving import Serving, listens, serve
    from reput.config.namesrv import NamesrvConfig
    from reput.files import DISK
    from reput.formats.hosts import ALL_ADDRESSES
    from reput.namesrv.name_server import NameServer
    from reput.transport.server import reached_at

    chosen = NamesrvConfig()
    if config is not None:
        text = DISK.read_bytes(config).decode("utf-8", "replace")
        chosen = NamesrvConfig.from_broker_conf(text, config, NamesrvConfig(config_store_path=config))
    pairs = parse_pairs(settings, "--set") | ({} if port is None else {"listenPort": str(port)})
    chosen = NamesrvConfig.from_mapping(pairs, chosen)

    async def start() -> Serving:
        server = NameServer(chosen)
        bound = await server.start()
        facts = listens(chosen.bind_address, f"bindAddress={ALL_ADDRESSES}, or an address of this machine")
        return Serving({"namesrv": reached_at(chosen.bind_address, bound)}, server.stop, facts)

    return serve(start, log_level=log_level, as_json=as_json, ignored=chosen.ignored)
