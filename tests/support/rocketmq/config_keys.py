"""The keys of RocketMQ's classes of configuration: as recorded in tests/golden/keys.tsv, and as its jars have them.

`python -m tests.support.rocketmq.config_keys` records them anew.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.rocketmq.apache import JAVA_OPTIONS
from tests.support.rocketmq.clients import built

#: Versions, and the profiles of lab/interop/keys/pom.xml: what Maven Central has of each.
VERSIONS: dict[str, tuple[str, ...]] = {
    "4.9.7": (),
    "5.3.3": ("tiered-store", "auth"),
    "5.4.0": ("tiered-store", "auth"),
    "5.5.0": ("tiered-store", "auth"),
    "5.5.1": ("tiered-store",),
}
GOLDEN = Path(__file__).parents[2] / "golden" / "keys.tsv"
#: Defaults that are the machine's: its name, its addresses, its environment.
_OF_MACHINES = frozenset(("brokerIP1", "brokerIP2", "brokerName", "rocketmqHome"))


class JavaKey(NamedTuple):
    """A key of a class: the Java type, and the default as text.

    `default` is None for a null, and "*" for one of the machine.
    """

    of: str
    name: str
    type: str
    default: str | None


def build_keys() -> None:
    """Build what `keys_of_jars` runs."""
    for version in VERSIONS:
        _built(version)


def keys_of_jars(version: str) -> list[JavaKey]:
    """The keys of a version by its own classes."""
    folder = _built(version)
    with tempfile.TemporaryDirectory() as home:
        # some defaults are numbers of processors
        options = ["-XX:ActiveProcessorCount=4", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
        command = ["java", *JAVA_OPTIONS, *options, "-cp", "target/classes:target/jars/*", "reput.interop.Keys"]
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr[-4000:]
    return sorted(_keys(told.stdout.replace(home, "~")), key=lambda key: key[:3])


def _keys(text: str) -> Iterator[JavaKey]:
    for line in text.splitlines():
        of, name, kind, *default = line.split("\t")
        yield JavaKey(of, name, kind, "*" if name in _OF_MACHINES else default[0] if default else None)


def recorded_keys() -> Mapping[str, list[JavaKey]]:
    """The keys of each version, as recorded.

    A line is class, key, type, and the default by version: nothing where the version has not the key, `null` for a
    null, and an empty text in quotes.
    """
    found: dict[str, list[JavaKey]] = {version: [] for version in VERSIONS}
    head, *lines = GOLDEN.read_text().splitlines()
    assert head.split("\t")[3:] == [*VERSIONS]
    for line in lines:
        of, name, kind, *defaults = line.split("\t")
        for version, default in zip(VERSIONS, defaults, strict=True):
            if default:
                value = {"null": None, '""': ""}.get(default, default)
                found[version].append(JavaKey(of, name, kind, value))
    return found


def _built(version: str) -> Path:
    profiles = ["-P" + ",".join(VERSIONS[version])] if VERSIONS[version] else []
    return built("keys", f"-Drocketmq.version={version}", *profiles)


def _record() -> None:
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for version in VERSIONS:
        for key in keys_of_jars(version):
            default = {None: "null", "": '""'}.get(key.default, key.default)
            assert default is not None
            lines.setdefault(key[:3], {})[version] = default
    rows = [("class", "key", "type", *VERSIONS)]
    rows += [(*key, *(lines[key].get(version, "") for version in VERSIONS)) for key in sorted(lines)]
    GOLDEN.write_text("".join("\t".join(row) + "\n" for row in rows))


if __name__ == "__main__":
    _record()
