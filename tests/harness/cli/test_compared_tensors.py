"""What `numdrift compare` prints of the tensors of two runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from numdrift.harness.cli.compare import _show
from numdrift.harness.drift.loss_distance import loss_drift
from numdrift.harness.drift.parameter_distance import ParameterComparison, ParameterMismatch
from numdrift.harness.drift.run_comparison import RunComparison

MISMATCH = ParameterMismatch("w", (2,), (3,), "float32", "float32")


def shown(parameters: ParameterComparison) -> str:
    losses = loss_drift([0], [1.0], [0], [1.0])
    compared = RunComparison("cpu", "compile", "complete", "complete", 1, 1, losses, None, 1, 0, parameters, ())
    screen = io.StringIO()
    _show(Console(file=screen, width=300), [compared], 8)
    return screen.getvalue()


def test_tensors_without_a_common_name_are_not_called_identical() -> None:
    said = shown(ParameterComparison((), ("fc.weight",), ("optimized.0",), ()))
    assert "identical" not in said
    assert "after step 0: no tensor has the same name in both, so none was compared" in said
    assert "only cpu has fc.weight" in said and "only compile has optimized.0" in said
    assert said.splitlines()[1].rstrip().endswith("none compared")  # in the place of the first differing tensor


@pytest.mark.parametrize("mismatches", [(), (MISMATCH,)])
def test_what_one_side_has_more_is_no_lack_of_common_names(mismatches: tuple[ParameterMismatch, ...]) -> None:
    said = shown(ParameterComparison((), ("fc.weight",), ("other",) if mismatches else (), mismatches))
    assert "none was compared" not in said and "none compared" not in said
