"""RocketMQ's clients of other languages and protocols in programs of ours, below interop/: built once and kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.marked import need
from tests.support.rocketmq.apache import JAVA_OPTIONS, maven

_SOURCES = Path(__file__).parents[3] / "lab" / "interop"
_GO = [["go", "build", "-mod=readonly", "-o", "client", "."]]
_NODE = [["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]]
_MAVEN = [["mvn", "-q", "-B", "-ntp", "compile"]]
#: The versions are those of go.sum, package-lock.json, pom.xml and requirements.txt.
_BUILD = {
    "go": _GO,
    "node": _NODE,
    "grpc/go": _GO,
    "grpc/node": _NODE,
    "grpc/python": [
        [sys.executable, "-m", "venv", "venv"],
        ["venv/bin/python", "-m", "pip", "install", "-q", "-r", "requirements.txt"],
    ],
    "grpc/java": _MAVEN,
    "grpc/proxy": _MAVEN,
    "iceberg": _MAVEN,
    "iceberg-spark": _MAVEN,
    "keys": _MAVEN,
}
_JAVA = ["java", *JAVA_OPTIONS, "-Duser.home={home}", "-Djava.io.tmpdir={home}", "-cp", "target/classes:target/jars/*"]
#: What spark-submit opens to Spark (JavaModuleOptions), of java.base.
_SPARK_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_SPARK = [*_JAVA, *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _SPARK_OPENED)]
_RUN = {
    "go": ["./client"],
    "node": ["node", "main.js"],
    "grpc/go": ["./client"],
    "grpc/node": ["node", "main.js"],
    "grpc/python": ["venv/bin/python", "main.py"],
    "grpc/java": [*_JAVA, "reput.interop.GrpcClient"],
    "grpc/proxy": [*_JAVA, "org.apache.rocketmq.proxy.ProxyStartup"],
    "iceberg": [*_JAVA, "reput.interop.IcebergTable"],
    "iceberg-spark": [*_SPARK, "reput.interop.IcebergSpark"],
}
#: Folders below interop/.
PROGRAMS = tuple(_RUN)
_MOST_S = 300


def run_client(program: str, *arguments: str) -> Any:
    """Output of a program, one JSON value. program: its folder below interop/."""
    folder = built(program)
    with tempfile.TemporaryDirectory() as home:
        told = _output([*run_command(program, Path(home)), *arguments], folder, HOME=home)
    return json.loads(told)


def run_command(program: str, home: Path) -> list[str]:
    """Command that runs a program in its folder. home: for logs and keys of Java's; other libraries ask for HOME."""
    return [word.format(home=home) for word in _RUN[program]]


def built(program: str, *options: str) -> Path:
    """The folder where a program can run: made the first time, and kept. options: of the commands that build it."""
    need("java")
    tool = _BUILD[program][0][0]
    assert shutil.which(tool), f"{tool} not found on PATH: tests of clients in other languages need Go, Node and Maven"
    sources = [path for path in sorted((_SOURCES / program).rglob("*")) if path.is_file()]
    content = b"".join(path.name.encode() + path.read_bytes() for path in sources) + " ".join(options).encode()
    digest = hashlib.sha256(content).hexdigest()[:16]
    with maven() as cache:
        folder = cache / f"{program.replace('/', '-')}-{digest}"
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache) as parent:
                project = shutil.copytree(_SOURCES / program, Path(parent) / "project")
                for command in _BUILD[program]:
                    _output([*command, *options], project)
                project.rename(folder)
    return folder


def _output(command: Sequence[str], folder: Path, **environment: str) -> str:
    """The standard output of a command that must end well."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=_MOST_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def sorted_bodies(messages: list[dict[str, Any]]) -> list[str]:
    """The bodies of messages of which a program tells."""
    return sorted(one["body"] for one in messages)
