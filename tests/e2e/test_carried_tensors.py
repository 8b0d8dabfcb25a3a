"""Faults in what a script carries from step to step beside the model, and in evaluations; with harmless twins."""

from __future__ import annotations

from pathlib import Path

import pytest

import numdrift

SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT = SCRIPTS / "carried_queue.py"


def test_a_fault_in_a_queue_is_found_where_it_is_made(tmp_path: Path) -> None:
    modes = ["cpu", "bad=cpu,env.FAULT=0.01", "good=cpu,env.FAULT=0"]
    found = numdrift.investigate(SCRIPT, modes=modes, out=tmp_path, scripts=False, confirm=False)
    bad, good = found.pairs
    assert good.verdict == "identical"
    assert bad.verdict == "beyond-rounding" and "(carried " in bad.text[0]
    # only what the step made counts, not what it found
    [culprit] = bad.culprits
    line = next(number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1) if 'get("FAULT"' in text)
    assert culprit.op == "aten.mul" and str(culprit.source).endswith(f"{SCRIPT.name}:{line}")
    assert culprit.status == "culprit" and (culprit.share_of_drift or 0) > 0.99


@pytest.mark.exhaustive
def test_averaged_weights_count_although_nothing_reads_them(tmp_path: Path) -> None:
    script = SCRIPTS / "carried_average.py"
    modes = ["cpu", "bad=cpu,env.FAULT=anew", "good=cpu,env.FAULT=same"]
    found = numdrift.investigate(script, modes=modes, out=tmp_path, scripts=False, confirm=False)
    bad, good = found.pairs
    assert good.verdict == "identical"
    assert bad.verdict == "beyond-rounding" and bad.first_significant_step == 3, bad.text
    assert "(carried average.module." in bad.text[0]
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "load_state_dict" in text)
    assert bad.culprits[0].op == "aten.copy_" and str(bad.culprits[0].source).endswith(f"{script.name}:{line}")
    assert bad.culprits[0].status == "culprit"


def test_an_evaluation_that_computes_something_else_is_found_although_the_training_is_equal(tmp_path: Path) -> None:
    # given a script that also has a time among its variables
    script = SCRIPTS / "wrong_evaluation.py"
    found = numdrift.investigate(
        script, modes=["cpu", "bad=cpu,env.FAULT=1", "good=cpu"], out=tmp_path, scripts=False, confirm=False
    )
    bad, good = found.pairs
    assert good.verdict == "identical"
    assert bad.verdict == "beyond-rounding" and "(evaluation 0 output 0" in bad.text[0]
    assert any("the losses have the same bits at every step" in text for text in bad.text)
    [culprit] = bad.culprits
    line = next(number for number, text in enumerate(script.read_text().splitlines(), 1) if "* 1.01" in text)
    assert (culprit.op, culprit.status) == ("aten.mul", "culprit") and str(culprit.source).endswith(f":{line}")
