"""Writes `tutorial.ipynb`, the cells of `tutorial.py` and what they print: `python -m examples.tutorial.notebook`.

A cell begins at a line `# %%`; one that begins at `# %% [markdown]` is text, each of its lines behind a `#`. The
cells are run, which takes a minute, Java and Chromium.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from examples.tutorial.picture import picture_of

SCRIPT = Path(__file__).with_name("tutorial.py")
NOTEBOOK = SCRIPT.with_suffix(".ipynb")
FIGURE = "application/vnd.plotly.v1+json"

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


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in a folder. Their outputs are what every run prints again: no log lines, times or JavaScript."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=900, record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs for kept in _without_noise(output)]
    notebook.metadata = {"kernelspec": _KERNEL}


def _without_noise(output: Any) -> list[Any]:
    if output.get("name") == "stderr":
        return []
    if FIGURE in output.get("data", {}):
        output.data = {FIGURE: output.data[FIGURE]}
    return [output]


def add_pictures(notebook: nbformat.NotebookNode) -> None:
    """Draw the figures, for readers without plotly."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if FIGURE in output.get("data", {}):
                output.data["image/svg+xml"] = picture_of(json.dumps(output.data[FIGURE]))


def main() -> None:
    notebook = to_notebook(SCRIPT.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        run(notebook, Path(folder))
    add_pictures(notebook)
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
