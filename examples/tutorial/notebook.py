"""Writes `tutorial.ipynb`, the cells of `tutorial.py` as a notebook: `python -m examples.tutorial.notebook`.

A cell begins at a line `# %%`; one that begins at `# %% [markdown]` is text, each of its lines behind a `#`.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

SCRIPT = Path(__file__).with_name("tutorial.py")
NOTEBOOK = SCRIPT.with_suffix(".ipynb")

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def to_notebook(script: str) -> nbformat.NotebookNode:
    """The notebook of a script, without outputs; the same script makes the same notebook."""
    cells = []
    for number, cell in enumerate(re.split(r"^# %%", script, flags=re.MULTILINE)[1:], start=1):
        head, _, source = cell.partition("\n")
        source = source.strip("\n")
        if head.strip() == "[markdown]":
            text = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
            cells.append(new_markdown_cell(text, id=f"cell-{number}"))
        else:
            cells.append(new_code_cell(source, id=f"cell-{number}"))
    return new_notebook(cells=cells, metadata={"kernelspec": _KERNEL})


if __name__ == "__main__":
    nbformat.write(to_notebook(SCRIPT.read_text(encoding="utf-8")), NOTEBOOK)
