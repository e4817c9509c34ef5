"""How a command begins and ends fast: what a process that may live for half a second leaves out.

Of 1.5 s that `reput stats` of a small store took, 0.3 s were pandas, which nobody asked for, and 0.4 s the garbage
collector's looks at the objects of imported modules, half of them when the process ended.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec

#: More than the modules of any command leave.
_IMPORTED_OBJECTS = 400_000
_USUAL_THRESHOLDS = gc.get_threshold()


class _NoPandas:
    """Finds no pandas, until pyspark is asked for, which needs it.

    pyarrow asks for it once, whatever it makes an array of, to know its objects when it sees them.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """What `import` asks each finder."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of a command of reput", name=name)
        if name == "pyspark.sql":  # not pyspark: whether that is there is asked without loading it
            sys.meta_path.remove(self)
        return None


def run(application: Callable[[], object]) -> None:
    """Run a whole process."""
    sys.meta_path.insert(0, _NoPandas())
    gc.set_threshold(_IMPORTED_OBJECTS)
    try:
        application()
    finally:
        _keep_what_is_there()


def begin_work() -> None:
    """Compile kernels where this installation has not yet; to be called with the command's modules imported.

    They have loaded the kernels that they need. All of them would take 0.2 s more.
    """
    from reput.kernel_loader import compile_kernels

    compile_kernels()
    _keep_what_is_there()


def _keep_what_is_there() -> None:
    """Let the collector look at new objects only, once a process; elsewhere than in `run` nothing is done."""
    if gc.get_threshold()[0] == _IMPORTED_OBJECTS:
        gc.freeze()
        gc.set_threshold(*_USUAL_THRESHOLDS)
