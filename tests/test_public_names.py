"""The public names are few, sorted, and cost nothing until they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numdrift


def test_public_names_are_pinned() -> None:
    assert numdrift.__all__ == [
        "Comparison",
        "Culprit",
        "Investigation",
        "Journal",
        "Pair",
        "PartitionConfig",
        "RecordedRun",
        "Recording",
        "RunBatch",
        "RunComparison",
        "SupportAnalysis",
        "after_step",
        "analyze",
        "assert_same_training",
        "batch",
        "bisect",
        "check",
        "check_baseline",
        "check_ops",
        "compare",
        "compare_batches",
        "compare_runs",
        "device",
        "investigate",
        "load_investigation",
        "load_run",
        "localize",
        "log",
        "mark_step",
        "neutral",
        "on_snapshot",
        "partition",
        "phase",
        "print",
        "read_pickle",
        "record",
        "reference",
        "resume",
        "run",
        "save_baseline",
        "step",
        "steps",
    ]


def test_every_public_name_resolves() -> None:
    assert all(getattr(numdrift, name).__name__ == name for name in numdrift.__all__)


def test_what_a_script_says_loads_nothing_at_all() -> None:
    code = "import sys, numdrift; before = set(sys.modules); numdrift.log(loss=1); numdrift.step(); print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "numdrift" in loaded and loaded <= {"numdrift", *sys.stdlib_module_names}


def test_investigating_loads_neither_torch_nor_pandas_before_it_needs_them() -> None:
    code = "import sys, numdrift; numdrift.analyze, numdrift.investigate, numdrift.run, numdrift.compare, numdrift.record, numdrift.load_investigation; print([m for m in ('torch', 'pandas', 'click', 'rich', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_known_to_type_checkers() -> None:
    # given the imports that only a type checker executes
    tree = ast.parse(Path(numdrift.__file__).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        (alias.name, f"numdrift{'.' + one.module if one.module else ''}")
        for block in blocks
        for one in ast.walk(block)
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    # then they are the public names, from where they are loaded
    assert imported == {(name, numdrift._HOMES[name]) for name in numdrift.__all__}


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, numdrift; print([m for m in ('torch', 'numpy', 'click', 'rich', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_that_only_read_load_no_torch() -> None:
    modules = ", ".join(f"numdrift.harness.cli.{name}" for name in ("compare", "investigate", "localize", "runs"))
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
