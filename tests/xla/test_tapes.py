"""The tape of a step in mode `xla`: what it holds is what the step gave, and recording it changes no bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..processes.forked import xla_python

pytestmark = pytest.mark.slow


def test_a_taped_step_keeps_its_bits_and_its_ops_give_its_results_again(tmp_path: Path) -> None:
    done = xla_python(tmp_path, ROOT / "tests/xla/scripts/taped.py", PJRT_DEVICE="CPU", PYTHONPATH=str(ROOT / "src"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same bits"] and found["loss"] and found["values"]
    # Where every value could be read, each op on what the ops before it gave leads to the very results of the step.
    assert (found["unknown"] == 0) == (not found["notes"])
    assert found["unknown"] or not found["replayed"]
    calls = [tuple(one) for one in found["calls"]]
    # The ops are those of the script: views where torch_xla has copies, and none of its own book-keeping.
    assert ("aten.slice.Tensor", "data", None) in calls and ("aten.tanh.default", "forward", "2") in calls
    assert ("aten.native_batch_norm_backward.default", "backward", "1") in calls
    assert {phase for _, phase, _ in calls} == {"data", "forward", "backward", "optimizer"}
    names = {op.split(".")[1] for op, _, _ in calls}
    assert not {one for one in names if one.endswith("_copy") and one != "_to_copy"}
    assert "_propagate_xla_data" not in names
    # What torch_xla makes of others is known as the one op that it is, the derivative of its parts as its derivative.
    composed: dict[str, set[str]] = {}
    for origin, name in found["composed"]:
        composed.setdefault(origin, set()).add(name)
    assert {"native_batch_norm", "addcmul"} <= composed["aten.native_layer_norm.default"]
    assert {"native_batch_norm_backward", "mul", "sum"} <= composed["aten.native_layer_norm_backward.default"]
    assert {"max_pool2d_with_indices", "max_pool2d_with_indices_backward", "lift_fresh"} <= names
