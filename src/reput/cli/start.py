"""Start and end of a command's process: output in any encoding, no pandas, no garbage collection of imported modules.

`reput stats` of a small store took 1.5 s: 0.3 s of it to import pandas, which is not used, and 0.4 s for the garbage
collector's passes over objects of imported modules, half of it at the end of the process.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec

from reput.cli.display.output import KernelLine

#: More objects than the modules of any command make.
_IMPORTED_OBJECTS = 400_000
_USUAL_THRESHOLDS = gc.get_threshold()


class _NoPandas:
    """Import finder that hides pandas until pyspark, which needs it, is imported.

    pyarrow imports pandas at the first array that it makes, to recognise its objects.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Called by `import` for each module."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of a command of reput", name=name)
        if name == "pyspark.sql":  # not pyspark: its presence is checked without loading it
            sys.meta_path.remove(self)
        return None


def run(application: Callable[[], object]) -> None:
    """Run the application of a process. What the encoding of stdout does not have is printed as `?`.

    Stderr needs nothing: there Python prints such characters as backslash escapes.
    """
    _read_names_as_utf8()
    if isinstance(sys.stdout, io.TextIOWrapper):  # None where the shell has closed it
        sys.stdout.reconfigure(errors="replace")
    sys.meta_path.insert(0, _NoPandas())
    kernels = logging.getLogger("reput.kernels")
    kernels.setLevel(logging.INFO)
    kernels.addHandler(KernelLine())
    gc.set_threshold(_IMPORTED_OBJECTS)
    try:
        application()
    finally:
        _freeze_objects()


def _read_names_as_utf8() -> None:
    """Start Python again in its UTF-8 mode if it takes names of files for another encoding; output keeps its own.

    RocketMQ names the folder of a queue after its topic, in UTF-8. Read otherwise, a topic with other letters than
    ASCII's would have no queue, which `reput audit` calls damage.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        if sys.stdout is not None:
            os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, sys.orig_argv)


def begin_work() -> None:
    """Begin the work of a command. To be called when the command's modules are imported."""
    _freeze_objects()


def _freeze_objects() -> None:
    """Freeze all objects for the garbage collector, once a process; do nothing outside of `run`."""
    if gc.get_threshold()[0] == _IMPORTED_OBJECTS:
        gc.freeze()
        gc.set_threshold(*_USUAL_THRESHOLDS)
