"""Calls of a named function: the target, and its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.errors import UsageError
from numdrift.harness.recorder.saved_inputs import read_saved
from numdrift.harness.records.run.call_subject import CallSubject
from numdrift.harness.script.calls.call_targets import planned_calls
from numdrift.harness.script.calls.captured_calls import CallCapture
from numdrift.harness.script.calls.planned_call import PlannedCall


def calls_of(subject: CallSubject, scope: dict[str, Any]) -> list[PlannedCall]:
    return planned_calls(subject, scope, CallCapture("script.py"), read_saved)


def add(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return (x + y) * scale


class Linear(torch.nn.Module):
    def __init__(self, width: int, *, bias: bool = True) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


def test_described_inputs_are_the_same_for_the_same_seed() -> None:
    subject = CallSubject("add", inputs="randn(4), randn(4), scale=2", seeds=2)
    first, second = calls_of(subject, {"add": add})
    (again, _) = calls_of(subject, {"add": add})
    assert torch.equal(first.args[0], again.args[0])
    assert not torch.equal(first.args[0], second.args[0])
    assert first.kwargs == {"scale": 2}
    assert [name for name, _ in first.names()] == ["x", "y"]
    assert all(tensor.requires_grad for _, tensor in first.names())


def test_values_match_those_of_torch() -> None:
    (call,) = calls_of(CallSubject("add", inputs="randn(3, 4), randint(0, 9, (3, 4))"), {"add": add})
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(call.args[0].detach(), torch.randn(3, 4, generator=generator))
    assert torch.equal(call.args[1], torch.randint(0, 9, (3, 4), generator=generator))
    assert not call.args[1].requires_grad


@pytest.mark.parametrize(
    ("layout", "stride"),
    [("transposed", (1, 3)), ("expanded", (0, 1)), ("sliced", (8, 2))],
    ids=lambda value: str(value),
)
def test_layouts(layout: str, stride: tuple[int, ...]) -> None:
    (call,) = calls_of(CallSubject("add", inputs=f"randn(3, 4, layout='{layout}'), 1.0"), {"add": add})
    assert call.args[0].shape == (3, 4)
    assert call.args[0].stride() == stride


def test_a_file_makes_its_inputs() -> None:
    scope = {"add": add, "inputs": lambda: (torch.randn(2), torch.randn(2))}
    _, second = calls_of(CallSubject("add", seeds=2), scope)
    torch.manual_seed(1)
    assert torch.equal(second.args[0].detach(), torch.randn(2))
    by_seed = {"add": add, "inputs": lambda seed: {"x": torch.full((2,), float(seed)), "y": torch.ones(2)}}
    _, call = calls_of(CallSubject("add", seeds=2), by_seed)
    assert call.kwargs["x"].tolist() == [1, 1]


def test_a_class_is_made_with_its_own_arguments() -> None:
    scope = {"Linear": Linear, "get_inputs": lambda: [torch.randn(2, 3)], "get_init_inputs": lambda: [3]}
    (call,) = calls_of(CallSubject("Linear"), scope)
    assert isinstance(call.function, Linear)
    with_names = {**scope, "get_init_inputs": lambda: [[3], {"bias": False}]}
    (call,) = calls_of(CallSubject("Linear"), with_names)
    assert call.function.inner.bias is None  # type: ignore[attr-defined]


def test_saved_inputs_hold_tensors_alone(tmp_path: Path) -> None:
    torch.save([torch.ones(2), torch.zeros(2)], tmp_path / "inputs.pt")
    (call,) = calls_of(CallSubject("add", saved=str(tmp_path / "inputs.pt")), {"add": add})
    assert call.args[0].tolist() == [1, 1]
    torch.save([Path], tmp_path / "object.pt")
    with pytest.raises(UsageError, match="holds no inputs that can be read safely"):
        calls_of(CallSubject("add", saved=str(tmp_path / "object.pt")), {"add": add})


def generator(x: torch.Tensor) -> Any:
    yield x


async def coroutine(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    ("subject", "part"),
    [
        (CallSubject("add"), "there are no inputs for add"),
        (CallSubject("missing", inputs="1"), "has no 'missing'"),
        (CallSubject("number", inputs="1"), "cannot be called"),
        (CallSubject("generator", inputs="randn(2)"), "is a generator"),
        (CallSubject("coroutine", inputs="randn(2)"), "is a coroutine"),
        (CallSubject("add", inputs="randn(2)"), "missing a required argument: 'y'"),
        (CallSubject("Linear", inputs="randn(2)"), "define get_init_inputs()"),
    ],
)
def test_a_target_that_cannot_be_called(subject: CallSubject, part: str) -> None:
    scope = {"add": add, "number": 3, "generator": generator, "coroutine": coroutine, "Linear": Linear}
    with pytest.raises(UsageError) as raised:
        calls_of(subject, scope)
    assert part in str(raised.value)
