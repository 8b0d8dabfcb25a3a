"""A different set-up is followed to the op, the draw or the line that made it, in the loop and before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import ROOT, Numdrift

PREPARED = ROOT / "tests" / "e2e" / "scripts" / "prepared.py"
LINES = PREPARED.read_text().splitlines()


def line_with(text: str) -> str:
    """`prepared.py:31`, the line of the script that has this."""
    (number,) = (number for number, line in enumerate(LINES, 1) if text in line)
    return f"prepared.py:{number}"


SAID = {
    # in the loop: on the tape of a later step
    "mask": ("batch", "aten.triu", f"triu ({line_with('torch.triu')}) receives diagonal=0 in mask, 1 in cpu"),
    "draw": ("generator", "aten.randn", f"after rand ({line_with('torch.rand(1)')}), which only draw executes"),
    # before it: on that of the preparation
    "std": ("batch", "aten.std", f"std ({line_with('data.std')}) receives correction=0 in std, 1 in cpu"),
    "init": ("initial", "aten.normal", f"normal ({line_with('nn.init')}) receives std=0.3 in init, 0.2 in cpu"),
    # outside of torch
    "numpy": ("batch", None, "float64 [8], 8 of 8 elements differ, by up to "),
}


@pytest.mark.slow
def test_a_different_set_up_is_followed_to_what_made_it(numdrift: Numdrift, tmp_path: Path) -> None:
    modes = [word for fault in SAID for word in ("--mode", f"{fault}=cpu,env.FAULT={fault}")]
    done = numdrift("investigate", PREPARED, "--mode", "cpu", *modes, "--name", "i", "--no-scripts")
    assert done.returncode == 1 and done.stderr.count("Traceback") == 0, done.stderr
    pairs = json.loads((tmp_path / "runs" / "i" / "investigation.json").read_text())["pairs"]
    assert [pair["b"] for pair in pairs] == list(SAID)
    for pair, (what, op, said) in zip(pairs, SAID.values(), strict=True):
        assert pair["verdict"] == "different-setup"
        assert said in pair["text"][0], pair["text"]
        setup, culprit, *others = pair["culprits"]
        assert setup["what"] == what and not others, pair["culprits"]
        assert (culprit["op"], culprit["status"], culprit["local_rule"]) == (op, "culprit", "batch")
        assert (
            said in culprit["text"] and culprit["proof"]["swap_in"]["holds"] and culprit["proof"]["swap_out"]["holds"]
        )
    numpy = pairs[-1]["text"][0]
    assert (
        "no op of the script computed the values from which it is computed" in numpy
        and line_with("from_numpy") in numpy
    )
