"""The stand-in for an accelerator is one: each check of checks/ holds in a process of its own."""

from __future__ import annotations

import ast
import functools
import json
from pathlib import Path

import pytest

from .conftest import Standin

CHECKS = Path(__file__).parent / "checks"
RUNNER = CHECKS / "runner.py"
NAMES = [
    (path.name, node.name)
    for path in sorted(CHECKS.glob("*_checks.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]

pytestmark = pytest.mark.slow


@functools.cache
def outcomes(standin: Standin, file: str) -> dict[str, str]:
    """Run all checks of a file at once."""
    done = standin.python(RUNNER, CHECKS / file)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory, standin_site: Path) -> Standin:
    """The stand-in in one folder for all checks."""
    return Standin(tmp_path_factory.mktemp("checks"), standin_site)


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_check(device: Standin, file: str, name: str) -> None:
    wrong = outcomes(device, file)[name]
    assert not wrong, wrong
