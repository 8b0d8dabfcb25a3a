"""Classes that are named by a string, and imported when they are asked for, are where the string says."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from numdrift.harness.backends.called_operators import ADOPTION, PASSED_OVER
from numdrift.harness.records.modes.mode_registry import registry
from numdrift.harness.script.adopted.meeting import Meeting
from numdrift.harness.script.adopted.placement import Placement

from ...levels import ROOT

TARGET = re.compile(r"^([a-z_]+(?:\.[a-z_]+)+):([A-Z]\w+)$")
BACKENDS = "numdrift.harness.backends"
OBSERVERS = "numdrift.harness.observers"


def targets() -> set[tuple[str, str]]:
    """Every `module:Class` that stands as a string in the harness; one of the backends or the observers is said from their folder on."""
    found = set()
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = TARGET.match(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
            if said is not None:
                home = OBSERVERS if path.name == "order.py" else BACKENDS
                module = said[1] if said[1].startswith("numdrift.") else f"{home}.{said[1]}"
                found.add((module, said[2]))
    return found


def test_every_class_that_is_named_by_a_string_is_there() -> None:
    found = targets()
    assert (f"{BACKENDS}.lazy.capture", "LazyCapture") in found and len(found) > 8, found
    missing = [f"{module}:{name}" for module, name in found if not hasattr(importlib.import_module(module), name)]
    assert not missing, missing


def test_every_mode_has_its_class() -> None:
    for base in registry.names():
        assert callable(registry.load(base).prepare), base


def test_files_whose_frames_are_passed_over_are_where_the_code_is() -> None:
    """By them the script's own operators are told from those that numdrift executes to read a value."""
    meeting = Meeting.__torch_function__.__code__.co_filename
    assert {meeting, Placement.__init__.__code__.co_filename} < ADOPTION
    assert meeting in PASSED_OVER
    assert [path for path in (*ADOPTION, *PASSED_OVER) if not Path(path).is_file()] == []
