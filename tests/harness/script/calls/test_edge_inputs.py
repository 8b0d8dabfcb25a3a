"""Special inputs of a call."""

from __future__ import annotations

import torch

from numdrift.harness.script.calls.edge_inputs import edge_calls
from numdrift.harness.script.calls.planned_call import PlannedCall


def edges() -> dict[str, PlannedCall]:
    x = torch.tensor([[1.5, -2.25], [0.25, 3.0], [-0.5, 0.75]], requires_grad=True)
    call = PlannedCall("the call", torch.add, (x, torch.arange(3)), {"alpha": torch.tensor(2.0)})
    return {edge.label: edge for edge in edge_calls(call)}


def test_values_are_special_and_signs_stay() -> None:
    made = edges()
    values = {label: edge.args[0] for label, edge in made.items()}
    assert not values["zeros"].any()
    assert values["infinities"].tolist() == [[torch.inf, -2.25], [0.25, torch.inf], [-0.5, 0.75]]
    assert values["NaN"].isnan().sum() == 2
    assert values["ties"].tolist() == [[2, -2], [0, 3], [0, 1]]
    tiny = values["subnormal numbers"]
    assert 0 < tiny.abs().max() < torch.finfo(torch.float32).tiny
    assert (tiny.sign() == torch.tensor([[1, -1], [1, 1], [-1, 1]])).all()
    assert torch.isfinite(values["the largest numbers"]).all()
    assert torch.isinf(values["the largest numbers"] * 4).all()
    assert all(edge.args[0].requires_grad for edge in made.values())
    assert all(made[label].args[1].tolist() == [0, 1, 2] for label in ("zeros", "NaN", "transposed memory"))


def test_tensors_that_share_a_first_dimension_are_shortened_together() -> None:
    made = edges()
    assert [tuple(value.shape) for value in made["an empty tensor"].args] == [(0, 2), (0,)]
    assert [tuple(value.shape) for value in made["size one"].args] == [(1, 2), (1,)]
    assert made["size one"].kwargs["alpha"].item() == 2
    assert made["repeated memory"].args[0].stride() == (0, 1)
    assert made["repeated memory"].args[0].tolist() == [[1.5, -2.25]] * 3
    assert made["transposed memory"].args[0].stride() == (1, 3)
    assert made["transposed memory"].args[0].tolist() == [[1.5, -2.25], [0.25, 3.0], [-0.5, 0.75]]
