"""docs/notebooks/first-investigation.ipynb: executed, and what is committed of it is what it gives."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ..conftest import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "first-investigation.ipynb"


def read(path: Path = NOTEBOOK) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def executed(folder: Path) -> Any:
    """The notebook after an execution in a folder that has the reproducers, as the repository's root has."""
    (folder / "reproducers").symlink_to(ROOT / "reproducers")
    notebook = read()
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def outputs(notebook: Any) -> list[dict[str, str]]:
    """What each cell of code shows, by type; what it prints under `stream`."""
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            data: dict[str, str] = {}
            for output in cell.outputs:
                data |= output.get("data", {}) if output.output_type != "stream" else {"stream": output.text}
            shown.append(data)
    return shown


def check(shown: list[dict[str, str]]) -> None:
    """What every execution gives, whatever the machine's last bits are."""
    plain = [one.get("text/plain", "") for one in shown]
    assert not any("stream" in one for one in shown)
    assert ast.literal_eval(plain[2]) == [("cpu", "complete", 60), ("compile", "complete", 60)]
    assert re.search(r"^count +60\.0", plain[3], re.MULTILINE)
    assert "undecided" in shown[6]["text/html"]
    assert len(plain[7].splitlines()) == 7  # six parameters below their names
    assert shown[8]["image/png"]
    assert ">rounding<" in shown[9]["text/html"] and "tanh_backward" in shown[9]["text/html"]
    assert "aten.tanh_backward" in shown[10]["text/html"] and "beyond-rounding" not in shown[10]["text/html"]
    (mode, verdict, _), *others = ast.literal_eval(plain[11])[0]
    assert (mode, verdict, others, ast.literal_eval(plain[11])[1]) == ("compile", "rounding", [], 0)


def test_the_committed_outputs_are_those_of_an_execution() -> None:
    notebook = read()
    check(outputs(notebook))
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == list(range(1, 13))
    assert "/work/" not in NOTEBOOK.read_text() and "/tmp/" not in NOTEBOOK.read_text()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_notebook_runs(tmp_path: Path) -> None:
    check(outputs(executed(tmp_path)))
