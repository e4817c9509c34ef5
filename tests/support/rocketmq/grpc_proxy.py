"""Apache RocketMQ's own gRPC proxy in front of any broker, as a process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.rocketmq.clients import built, run_command
from tests.support.sockets import free_ports

_HOST = "127.0.0.1"


@contextmanager
def grpc_proxy(namesrv: str, home: Path) -> Iterator[str]:
    """Address of a proxy of a name server's DefaultCluster. home: for the proxy's settings and logs."""
    port, remoting_port = free_ports(2)
    settings = home / "proxy.json"
    keys = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": port,
        "remotingListenPort": remoting_port,
        "transactionHeartbeatPeriodSecond": 1,  # until the first one a broker has nobody to ask for open transactions
    }
    settings.write_text(json.dumps(keys))
    command = [*run_command("grpc/proxy", home), "-pm", "cluster", "-n", namesrv, "-pc", str(settings)]
    with (
        (home / "errors.txt").open("w") as errors,
        subprocess.Popen(command, cwd=built("grpc/proxy"), stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            told = [""]
            while "startup successfully" not in told[-1]:
                line = process.stdout.readline()
                assert line, f"the proxy did not start: {''.join(told)}{(home / 'errors.txt').read_text()}"
                told.append(line)
            yield f"{_HOST}:{port}"
        finally:
            process.kill()
