"""The tutorial: its notebook is its script, and every cell of it runs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from examples.tutorial.notebook import NOTEBOOK, SCRIPT, to_notebook


def printed(notebook: nbformat.NotebookNode) -> str:
    """What the cells wrote, without Spark's ruling of tables."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.get("name") == "stdout").replace(" ", "")


def test_the_notebook_has_the_cells_of_the_script() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert notebook == to_notebook(SCRIPT.read_text(encoding="utf-8")), "run python -m examples.tutorial.notebook"


def test_a_notebook_keeps_text_and_code_apart() -> None:
    first, second = to_notebook("# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\nprint(1)\n\n# note\n").cells
    assert (first.cell_type, first.source) == ("markdown", "# Title\n\nText")
    assert (second.cell_type, second.source) == ("code", "print(1)\n\n# note")


@pytest.mark.spark
def test_all_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    notebook = to_notebook(SCRIPT.read_text(encoding="utf-8"))
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = printed(notebook)
    assert "|departures|6064|1090274|" in text
    assert '{"origin":"JFK","hour":"2013-01-09T13:00:00.000Z","flights":29}' in text
    assert "|786|786|786|" in text  # hours, distinct ones, equal ones
    assert (tmp_path / "build" / "tutorial" / "delays.html").exists()
