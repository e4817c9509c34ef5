"""Apache RocketMQ's own DefaultMessageStore in a Java process, built from lab/interop/ and driven line by line."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.marked import need

VERSIONS = ("4.9.7", "5.3.3", "5.5.0")
#: Of 5.5.1 Maven Central has the store, and no client, name server and tools.
STORE_VERSIONS = (*VERSIONS, "5.5.1")
#: Beside them, to say since which version something is so.
EACH_STORE = (*VERSIONS[:2], "5.4.0", *STORE_VERSIONS[2:])
#: Of these there are the commands of reput.interop.StoreMain alone.
STORE_ONLY = ("5.4.0", "5.5.1")
SOURCES = Path(__file__).parents[3] / "lab" / "interop"
#: What RocketMQ's own start scripts open to it, for mapped buffers.
_OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref")
#: For short runs: the second compiler takes more time than it saves them.
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


#: A consumer that has missed its turn looks again which queues are its own, by default 20 s later.
_REBALANCE = "-Drocketmq.client.rebalance.waitInterval=1000"
#: Its servers make a key for TLS at their start, which takes longer than the rest of it. Later options may turn TLS on.
_NO_TLS = "-Dtls.server.mode=disabled"
#: A thread of a 5.x broker spins until the first of these intervals is over: by default 3 s, in 5.5.0 10 s. Another one
#: writes the wheel of timers, 38 MB, each second by default; it is written when the broker is stopped, too. A third one
#: sleeps between its flushes, whoever waits for its end, unless they are not timed.
_SHORT_LIVED = {
    "transactionMetricFlushInterval": "100", "timerFlushIntervalMs": "3600000", "flushCommitLogTimed": "false",
}  # fmt: skip


class ApacheError(Exception):
    """A command failed in Java, or Java did: the stack trace, or the last lines that the process printed."""


@contextmanager
def maven() -> Iterator[Path]:
    """The folder of what is built: ~/.cache/reput/interop, or REPUT_INTEROP_DIR.

    Maven's own cache is not made for two at a time: whoever runs Maven is alone meanwhile.
    """
    cache = Path(os.environ.get("REPUT_INTEROP_DIR", Path.home() / ".cache/reput/interop"))
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def build(version: str) -> Path:
    """The folder with classes and jars for a RocketMQ version: made by Maven the first time, and kept.

    It is named by the version and a hash of the sources.
    """
    need("java")
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ApacheError(
            f"{' and '.join(missing)} not found on PATH: "
            "the tests against Apache RocketMQ need a JDK 11 or newer and Maven"
        )
    sources = [path for path in sorted([SOURCES / "pom.xml", *SOURCES.glob("src/**/*")]) if path.is_file()]
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    with maven() as cache:
        built = cache / f"{version}-{digest}"
        if not built.exists():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                project = shutil.copytree(SOURCES, Path(folder) / "project")
                only = ["-DstoreOnly"] if version in STORE_ONLY else []
                command = ["mvn", "-q", "-B", "-ntp", "compile", f"-Drocketmq.version={version}", *only]
                made = subprocess.run(command, cwd=project, capture_output=True, text=True)
                if made.returncode:
                    told = made.stdout + made.stderr
                    raise ApacheError(f"Maven cannot build lab/interop/ for RocketMQ {version}:\n{told}")
                (project / "target").rename(built)
    return built


def classes_command(version: str, home: Path, java_options: tuple[str, ...] = JAVA_OPTIONS) -> list[str]:
    """Command that runs a class of lab/interop/, whose name comes behind it. home: of the Java user, for logs."""
    built = build(version)
    opened = [word for name in _OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    # 5.x has a logback of its own, with names of its own.
    silent = f"-Drmq.logback.configurationFile={built / 'classes/logback.xml'}"
    path = f"{built / 'classes'}:{built / 'jars'}/*"
    return ["java", _NO_TLS, _REBALANCE, *java_options, *opened, silent, f"-Duser.home={home}", "-cp", path]


class Apache:
    """One Java process of a RocketMQ version; it starts with the first command, and again after a kill.

    `run("open", path=..., config={...})` and so on; the commands are those of reput.interop.Main, or StoreMain.
    java_options: more options for the JVM. A context manager that ends the process.
    """

    def __init__(self, version: str, java_options: tuple[str, ...] = JAVA_OPTIONS) -> None:
        self.version = version
        self._java_options = java_options
        self._process: subprocess.Popen[str] | None = None
        #: The home of the Java user, for logs that no configuration stops, and its standard error.
        self._home = tempfile.TemporaryDirectory()
        self._errors = Path(self._home.name, "errors.txt")

    def _start(self) -> subprocess.Popen[str]:
        command = classes_command(self.version, Path(self._home.name), self._java_options)
        with self._errors.open("w") as errors:
            return subprocess.Popen(
                [*command, f"reput.interop.{'StoreMain' if self.version in STORE_ONLY else 'Main'}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    def run(self, command: str, **arguments: object) -> Any:
        """The result of a command; raises ApacheError."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.kill()
            raise ApacheError(f"RocketMQ {self.version} ended during {command}: {self._errors.read_text()[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise ApacheError(f"RocketMQ {self.version}, {command}: {answer['error']}")
        return answer["result"]

    def start_broker(self, path: Path, *, keys: Mapping[str, str] | None = None, **arguments: object) -> None:
        """Let RocketMQ's broker serve the store at path, with keys of broker and store, until `broker-stop`."""
        self.run("broker-start", path=str(path), keys=_SHORT_LIVED | dict(keys or {}), **arguments)

    def serve(self, path: Path, *, keys: Mapping[str, str] | None = None, **arguments: object) -> str:
        """The same with a name server, which knows the broker's topic when this returns its address."""
        return str(self.run("broker-serve", path=str(path), keys=_SHORT_LIVED | dict(keys or {}), **arguments))

    @contextmanager
    def serving(self, path: Path, *, keys: Mapping[str, str] | None = None, **arguments: object) -> Iterator[str]:
        """As `serve`; the broker is stopped cleanly and the process ends, also after an error: no test meets it."""
        try:
            yield self.serve(path, keys=keys, **arguments)
            self.run("broker-stop")
        finally:
            self.kill()

    @property
    def pid(self) -> int:
        """The number of the process, which has had a command."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9 of the process with whatever it has open."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._home.cleanup()
