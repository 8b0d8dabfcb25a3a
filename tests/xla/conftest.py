"""The tests of mode `xla` need the environment that `bash scripts/xla` makes."""

from __future__ import annotations

import pytest

from ..conftest import ROOT
from ..processes.forked import xla_nursery

PYTHON = ROOT / ".venv-xla/bin/python"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not PYTHON.exists():
        for item in items:
            if item.path.is_relative_to(ROOT / "tests/xla"):
                item.add_marker(pytest.mark.skip(reason="there is no .venv-xla here: bash scripts/xla"))


@pytest.fixture(autouse=True, scope="session")
def trainings_on_xla_are_forked() -> None:
    """Trainings in mode `xla` are forked off a process that has imported torch_xla."""
    xla_nursery()
