"""Classes that are named by a string, and imported when they are asked for, are where the string says."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from numdrift.harness.backends.called_operators import ADOPTION, PASSED_OVER
from numdrift.harness.records.modes.mode_registry import registry
from numdrift.harness.script.adopted.meeting import Meeting
from numdrift.harness.script.adopted.placement import Placement

from ...levels import ROOT, parsed

TARGET = re.compile(r"^([a-z_]+(?:\.[a-z_]+)*):([A-Z]\w+)$")
MODULE = re.compile(r"^(numdrift\.(?:harness|kernels)(?:\.\w+)+)(?::(\w+))?$")
BACKENDS = "numdrift.harness.backends"
OBSERVERS = "numdrift.harness.observers"


def strings() -> Iterator[tuple[Path, str]]:
    """Yield every string of the harness with its file."""
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def targets() -> set[tuple[str, str]]:
    """Return every `module:Class` that is a string of the harness; the folder of backends or observers is left out there."""
    found = set()
    for path, text in strings():
        if match := TARGET.match(text):
            home = OBSERVERS if path.name == "order.py" else BACKENDS
            found.add((match[1] if match[1].startswith("numdrift.") else f"{home}.{match[1]}", match[2]))
    return found


@pytest.mark.slow
def test_every_class_that_is_named_by_a_string_is_there() -> None:
    found = targets()
    assert (f"{OBSERVERS}.calls.operations", "RecordedOperations") in found and len(found) > 8, found
    missing = [f"{module}:{name}" for module, name in found if not hasattr(importlib.import_module(module), name)]
    assert not missing, missing


def test_every_module_that_is_named_by_a_string_is_there() -> None:
    named = {match.groups() for _, text in strings() if (match := MODULE.match(text))}
    assert ("numdrift.harness.tape.serving.service", None) in named and len(named) > 20, named
    assert [name for name, _ in named if importlib.util.find_spec(name) is None] == []


def test_every_mode_has_its_class() -> None:
    for base in registry.names():
        assert callable(registry.load(base).prepare), base


def test_files_whose_frames_are_passed_over_are_where_the_code_is() -> None:
    """By them the script's own operators are told from those that numdrift executes to read a value."""
    meeting = Meeting.__torch_function__.__code__.co_filename
    assert {meeting, Placement.__init__.__code__.co_filename} < ADOPTION
    assert meeting in PASSED_OVER
    assert [path for path in (*ADOPTION, *PASSED_OVER) if not Path(path).is_file()] == []
