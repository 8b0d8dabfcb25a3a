"""The public names are few, sorted, and cost nothing until they are used."""

from __future__ import annotations

import subprocess
import sys

import numdrift


def test_public_names_are_pinned() -> None:
    assert numdrift.__all__ == [
        "Journal",
        "RecordedRun",
        "RunComparison",
        "compare_runs",
        "load_run",
        "read_pickle",
    ]


def test_every_public_name_resolves() -> None:
    assert all(getattr(numdrift, name).__name__ == name for name in numdrift.__all__)


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, numdrift; print([m for m in ('torch', 'numpy', 'click', 'rich', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_that_only_read_load_no_torch() -> None:
    modules = ", ".join(
        f"numdrift.harness.cli.{name}" for name in ("compare", "findings", "investigate", "localize", "runs")
    )
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
