from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from numdrift.harness.backends.lazy.adapter import observe_lazy
from numdrift.harness.records.tools.backend_work import OperatorCall
from numdrift.harness.torch_private.deferred.lazy import lazy_mark_step, start_lazy_backend
from numdrift.harness.torch_private.profiling.lazy_work import lazy_counter, lazy_without_execution

HERE = Path(__file__).name


@pytest.fixture(scope="module", autouse=True)
def backend() -> None:
    start_lazy_backend()


def observed(training: Callable[[], object]) -> list[OperatorCall]:
    calls: list[OperatorCall] = []
    with observe_lazy(__file__, calls.append):
        training()
    return calls


def on_lazy(*shape: int) -> torch.Tensor:
    return torch.linspace(0.1, 1.0, torch.Size(shape).numel()).reshape(shape).to("lazy")


def line_of(text: str) -> str:
    """Where the only line with this end is in this file."""
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"{HERE}:{found}"


def test_what_falls_back_is_unsupported_at_its_line() -> None:
    x = on_lazy(4)

    def model() -> None:
        y = torch.fft.fft(x)  # the transform
        (x + 10).mul(y)

    calls = observed(model)
    unsupported = [one for one in calls if not one.supported]
    assert [(one.kind, one.configuration.partition(",")[0]) for one in unsupported] == [
        ("aten::_fft_r2c", "float32[4]")
    ]
    assert unsupported[0].call == line_of("the transform")
    assert unsupported[0].failure_at == "lazy core"
    assert "the CPU executes the operator" in unsupported[0].reason
    assert {one.kind for one in calls if one.supported} == {"aten::add", "aten::mul"}


def test_instructions_are_those_of_the_ir() -> None:
    (call,) = observed(lambda: on_lazy(4) + 10)
    assert call.instructions == ("float32[4] aten::add(float32[4], int64[], int64[])",)


def test_a_backward_operator_has_the_line_of_its_forward() -> None:
    x = on_lazy(4, 3).requires_grad_()

    def training() -> None:
        loss = torch.tanh(x).sum()  # the forward
        loss.backward()

    (call,) = (one for one in observed(training) if one.kind == "aten::tanh_backward")
    assert call.call == line_of("the forward")


def test_transfers_and_reads_are_no_operators() -> None:
    assert observed(lambda: torch.ones(3).to("lazy").cpu()) == []
    assert observed(lambda: torch.ones(()).to("lazy").item()) == []


def test_what_raises_in_the_backend_is_unsupported_and_still_raises() -> None:
    x = on_lazy(5, 2, 3)
    lstm = nn.LSTM(3, 4).to("lazy")
    calls: list[OperatorCall] = []
    with pytest.raises(RuntimeError, match="not a lazy tensor"), observe_lazy(__file__, calls.append):
        lstm(x)[0].sum().backward()
    reasons = {one.kind: one.reason for one in calls if not one.supported}
    assert any("not a lazy tensor" in reason for reason in reasons.values())
    assert any("its results stay on the CPU" in reason for reason in reasons.values())


def test_shapes_that_do_not_fit_are_no_lack_of_support() -> None:
    calls: list[OperatorCall] = []
    with pytest.raises(RuntimeError), observe_lazy(__file__, calls.append):
        torch.mm(on_lazy(2, 3), on_lazy(2, 3))
    assert all(one.supported for one in calls)


def trained() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 1)).to("lazy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(on_lazy(7, 3)).square().mean().backward()
        optimizer.step()
        lazy_mark_step()()
    return [one.detach().cpu() for one in model.parameters()]


def test_no_bit_of_a_training_changes() -> None:
    plain = trained()
    seen: list[torch.Tensor] = []
    calls = observed(lambda: seen.extend(trained()))
    assert {one.kind for one in calls if not one.supported} == {"aten::lerp"}
    for before, after in zip(plain, seen, strict=True):
        assert torch.equal(before, after)


def test_a_dry_run_executes_nothing_and_finds_the_same() -> None:
    plain = {(one.kind, one.configuration, one.reason) for one in observed(trained)}
    executed = ("UncachedCompile", "CachedCompile")
    before = [lazy_counter(name) for name in executed]
    with lazy_without_execution():
        dry = {(one.kind, one.configuration, one.reason) for one in observed(trained)}
        assert on_lazy(3).cpu().tolist() == [0.0, 0.0, 0.0]
    assert [lazy_counter(name) for name in executed] == before
    assert dry == plain
    assert on_lazy(2).cpu().tolist() != [0.0, 0.0]
