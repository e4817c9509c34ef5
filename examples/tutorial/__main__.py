"""`python -m examples.tutorial`: all cells of the tutorial, one after the other."""

from __future__ import annotations

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("tutorial.py")), run_name="__main__")
