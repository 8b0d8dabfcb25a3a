"""torch.compile's work as it is observed."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn

from numdrift.harness.backends.compiled.work import CompiledWork
from numdrift.harness.records.tools.backend_work import Work


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def train(step: Callable[[torch.Tensor], torch.Tensor], made: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    losses = []
    for _ in range(3):
        loss = step(torch.randn(16, 4)).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return [*losses, *(one.grad for one in made.parameters() if one.grad is not None)]


def line_of(function: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def observed(backend: str) -> tuple[list[Work], list[torch.Tensor]]:
    works: list[Work] = []
    made = model()
    with CompiledWork(__file__, works.append) as tell:
        results = train(torch.compile(made, backend=backend), made)
        tell()
    return works, results


def test_compilations_and_executions_are_told_and_change_no_bit() -> None:
    # when
    works, results = observed("aot_eager")
    # then
    assert [(one.kind, one.name.rpartition(" ")[2]) for one in works] == [
        ("compile", "0/0"), ("execute", "forward"), ("compile", "backward"), ("execute", "backward"),
        *[("execute", "forward"), ("execute", "backward")] * 2,
    ]  # fmt: skip
    assert all(one.seconds is not None and one.seconds > 0 and one.size for one in works)
    assert works[1].call == f"test_compiled_work.py:{line_of(train, 'square()')}"
    assert works[3].call == f"test_compiled_work.py:{line_of(train, 'backward()')}"
    torch.compiler.reset()
    made = model()
    plain = train(torch.compile(made, backend="aot_eager"), made)
    assert all(torch.equal(one, other) for one, other in zip(results, plain, strict=True))


def test_a_backend_that_runs_dynamos_graph_is_seen() -> None:
    works, _ = observed("eager")
    assert [(one.kind, one.size) for one in works] == [("compile", 3), *[("execute", 3)] * 3]


def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
    return x * factor


def test_a_function_that_is_compiled_again_says_which_guard_did_not_hold() -> None:
    works: list[Work] = []
    with CompiledWork(__file__, works.append):
        compiled = torch.compile(scaled, backend="aot_eager", dynamic=False)
        for values, factor in ((torch.ones(3), 2), (torch.ones(4), 2), (torch.ones(4), 3), (torch.ones(4), 3)):
            compiled(values, factor)
    assert [(one.name, one.cause) for one in works if one.kind == "compile"] == [
        ("graph 0/0", ""),
        ("graph 0/1", "tensor 'x' size mismatch at index 0. expected 3, actual 4"),
        ("graph 0/2", "factor == 2"),
    ]
    line = line_of(test_a_function_that_is_compiled_again_says_which_guard_did_not_hold, "compiled(values")
    assert {one.call for one in works if one.kind == "compile"} == {f"test_compiled_work.py:{line}"}


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def test_a_graph_break_is_a_fallback_with_its_line() -> None:
    works: list[Work] = []
    with CompiledWork(__file__, works.append):
        torch.compile(breaks, backend="eager")(torch.ones(3))
    (found,) = [one for one in works if one.kind == "fallback"]
    assert found.name.startswith("graph break: ")
    assert found.call == f"test_compiled_work.py:{line_of(breaks, 'graph_break()')}"
    assert sum(one.kind == "execute" for one in works) == 2


def sorts(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x * 2).values + 1


@pytest.mark.slow
def test_inductor_names_what_it_leaves_to_torch() -> None:
    # given a graph with an op that Inductor has no kernel for on the CPU
    works: list[Work] = []
    # when
    with torch._inductor.utils.fresh_cache(), CompiledWork(__file__, works.append):
        torch.compile(sorts)(torch.ones(37))
    # then
    assert [one.kind for one in works] == ["compile", "fallback", "execute"]
    assert works[0].cached is False
    where = f"test_compiled_work.py:{line_of(sorts, 'torch.sort')}"
    assert works[1] == Work("fallback", "aten::sort.stable", call=where)


def sorts_and_turns(x: torch.Tensor) -> torch.Tensor:
    y = torch.sort(x).values
    y = torch.sort(y * x).values
    turned = torch.complex(y, y) * torch.complex(x, y)
    return turned.real * 3


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_each_kernel_of_torchs_counts_with_its_own_line(cached: bool) -> None:
    works: list[Work] = []
    functorch = torch._functorch.config.patch(enable_autograd_cache=False)
    with torch._inductor.utils.fresh_cache(), functorch:
        if cached:
            torch.compile(sorts_and_turns)(torch.ones(37))
            torch.compiler.reset()
        with CompiledWork(__file__, works.append):
            torch.compile(sorts_and_turns)(torch.ones(37))
    assert bool(works[0].cached) is cached
    found = [(one.name, one.call) for one in works if one.kind == "fallback"]
    lines = [line_of(sorts_and_turns, text) for text in ("torch.sort(x)", "torch.sort(y", "turned = ")]
    assert [call for name, call in found if name == "aten::sort.stable"] == [
        f"test_compiled_work.py:{line}" for line in lines[:2]
    ]
    assert ("aten::mul.Tensor", f"test_compiled_work.py:{lines[2]}") in found
    assert sum(name == "aten::mul.Tensor" for name, _ in found) == 1


def test_a_failure_of_the_observation_is_told_afterwards_and_not_raised_within() -> None:
    def fails(work: Work) -> None:
        raise ValueError("no place for it")

    observing = CompiledWork(__file__, fails)
    with observing as tell:
        assert torch.compile(breaks, backend="eager")(torch.ones(3)).tolist() == [4, 4, 4]
        with pytest.raises(ValueError, match="no place"):
            tell()
