"""Ops that a script defines: only its own process can execute them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import Numdrift

SCRIPT = Path(__file__).parent / "scripts" / "own_op.py"
OP = "numdrift_test.log_probabilities"


@pytest.mark.slow
@pytest.mark.parametrize("modes", [("plain=cpu", "half=cpu,env.FAULT=1"), ("half=cpu,env.FAULT=1", "plain=cpu")])
def test_an_op_of_the_scripts_own_is_executed_by_its_process_and_named(
    modes: tuple[str, str], numdrift: Numdrift, tmp_path: Path
) -> None:
    # when
    numdrift("investigate", SCRIPT, "--mode", modes[0], "--mode", modes[1], "--name", "own")
    # then
    (pair,) = json.loads((tmp_path / "runs/own/investigation.json").read_text())["pairs"]
    assert pair["verdict"] == "beyond-rounding"
    (culprit,) = pair["culprits"]
    assert (culprit["op"], culprit["module"], culprit["kind"], culprit["status"]) == (OP, "3", "kernel", "culprit")
    assert culprit["proof"]["swap_in"]["holds"] and culprit["proof"]["swap_out"]["holds"]
    assert pair["explained"] == 1.0
    assert "no setting of a mode replaces" in pair["without"]["text"]
