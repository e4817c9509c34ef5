"""The tutorial: its notebook is its script, and every cell of it prints what the notebook shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from examples.tutorial.notebook import FIGURE, NOTEBOOK, SCRIPT, run, to_notebook

STORED = nbformat.read(NOTEBOOK, as_version=4)


def printed(notebook: nbformat.NotebookNode) -> dict[str, list[Any]]:
    """What each cell wrote, and what it drew, by its id."""
    return {
        cell.id: [
            "".join(output.get("text", "") for output in cell.outputs),
            *(output.data[FIGURE] for output in cell.outputs if "data" in output),
        ]
        for cell in notebook.cells
        if cell.get("outputs")
    }


def test_the_notebook_has_the_cells_of_the_script() -> None:
    cells = [(cell.id, cell.cell_type, cell.source) for cell in STORED.cells]
    expected = to_notebook(SCRIPT.read_text(encoding="utf-8")).cells
    assert cells == [(cell.id, cell.cell_type, cell.source) for cell in expected], (
        "python -m examples.tutorial.notebook"
    )


def test_the_notebook_is_small_and_shows_its_figure_to_who_has_no_plotly() -> None:
    assert NOTEBOOK.stat().st_size < 300_000
    (figure,) = [output.data for cell in STORED.cells for output in cell.get("outputs", []) if "data" in output]
    assert figure["image/svg+xml"].count('class="point"') == len(figure[FIGURE]["data"][0]["x"])


def test_a_notebook_keeps_text_and_code_apart() -> None:
    first, second = to_notebook("# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\nprint(1)\n\n# note\n").cells
    assert (first.cell_type, first.source) == ("markdown", "# Title\n\nText")
    assert (second.cell_type, second.source) == ("code", "print(1)\n\n# note")


@pytest.mark.spark
def test_all_cells_print_what_the_notebook_shows(tmp_path: Path) -> None:
    notebook = to_notebook(SCRIPT.read_text(encoding="utf-8"))
    run(notebook, tmp_path)
    assert printed(notebook) == printed(STORED), "python -m examples.tutorial.notebook"
    assert "|  786|     786|  786|" in NOTEBOOK.read_text(encoding="utf-8")  # hours, distinct ones, equal ones
    assert (tmp_path / "build" / "tutorial" / "delays.html").exists()
