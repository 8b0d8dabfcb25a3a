from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.backends.compiled.mode import CompileMode
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.module_calls import ModuleCalls
from numdrift.harness.script.script_compiling import Compiler, ScriptCompiles, modules_called_by
from numdrift.harness.script.understood import ScriptNotes
from numdrift.harness.torch_private.profiling.compile_work import compiled_regions, graph_breaks


class Script:
    """A script whose calls of torch.compile are routed: what was noted, and the modules that were reported."""

    def __init__(self) -> None:
        self.facts: list[str] = []
        self.reached: list[torch.nn.Module] = []


@contextmanager
def routed(compiler: Compiler | None) -> Iterator[Script]:
    script = Script()
    facts = AdoptionFacts(lambda event, **fields: script.facts.append(fields["text"]))
    calls = ModuleCalls(lambda module, args, kwargs: None)
    calls.open()
    undo = ScriptCompiles(compiler, ScriptNotes(facts, __file__)).install(calls, script.reached.append)
    try:
        yield script
    finally:
        undo()
        calls.close()
        torch.compiler.reset()


def compile_mode(text: str = "compile,backend=eager") -> CompileMode:
    return CompileMode(parse_mode(text))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.tanh(self.inner(x))
        return out


X = torch.ones(1, 2)


def regions_of(run: Callable[[], Any]) -> int:
    before = compiled_regions()
    run()
    return compiled_regions() - before


def test_an_eager_mode_compiles_nothing() -> None:
    with routed(None) as script:
        # given
        model, function = Net(), torch.relu

        @torch.compile
        def decorated(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @torch.compile(mode="max-autotune", fullgraph=True)
        def with_arguments(x: torch.Tensor) -> torch.Tensor:
            return x * 3

        compiled = torch.compile(model, dynamic=False)
        in_place = Net()
        in_place.compile(mode="reduce-overhead")

        # when
        def run() -> None:
            assert torch.equal(compiled(X), model(X))
            assert torch.equal(decorated(X), X * 2)
            assert torch.equal(with_arguments(X), X * 3)
            in_place(X)

        # then
        assert regions_of(run) == 0
        assert torch.compile(function) is function
    assert script.facts[:2] == [
        "torch.compile(decorated) stays eager",
        "torch.compile(with_arguments, mode='max-autotune', fullgraph=True) stays eager",
    ]
    assert script.facts[2:4] == [
        "torch.compile(Net, dynamic=False) stays eager",
        "torch.compile(Net, mode='reduce-overhead') stays eager",
    ]


def test_what_is_left_eager_has_the_names_that_scripts_rely_on() -> None:
    model = Net()
    by_torch: Any = torch.compile(model, backend="eager")
    with routed(None):
        left: Any = torch.compile(model)
    assert type(left) is type(by_torch)
    assert left._orig_mod is model
    assert list(left.state_dict()) == list(by_torch.state_dict()) == ["_orig_mod.inner.weight", "_orig_mod.inner.bias"]
    assert left.train(False).training is False


def test_a_compile_mode_compiles_with_its_own_backend() -> None:
    with routed(compile_mode()) as script:
        model, other = Net(), Net()
        compiled = torch.compile(model, backend="inductor", mode="default", fullgraph=True)
        other.compile(dynamic=False)
        assert regions_of(lambda: (compiled(X), other(X))) == 2
    assert script.facts == [
        (
            "torch.compile(Net, mode='default', backend='inductor', fullgraph=True) "
            "compiles with backend='eager', fullgraph=True"
        ),
        "torch.compile(Net, dynamic=False) compiles with backend='eager', dynamic=False",
    ]


def test_torch_compile_with_disable_stays_disabled() -> None:
    with routed(compile_mode()) as script:
        model = Net()
        assert torch.compile(model, disable=True) is model
    assert not script.facts


def test_a_compiled_function_reports_the_models_that_it_calls() -> None:
    with routed(compile_mode()) as script:
        model = Net()

        @torch.compile
        def loss_of(x: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = model(x).sum()
            return loss

        def run() -> None:
            loss_of(X).backward()
            loss_of(X)

        assert regions_of(run) == 1
    assert script.reached == [model]
    assert model.inner.weight.grad is not None


def test_a_model_that_the_script_compiles_is_not_compiled_again() -> None:
    mode = compile_mode()
    with routed(mode):
        wrapped, in_place, parts, by_forward, plain = Net(), Net(), Net(), Net(), Net()
        compiled: Any = torch.compile(wrapped)
        in_place.compile()
        before = in_place._compiled_call_impl
        parts.inner.compile()
        vars(by_forward)["forward"] = torch.compile(by_forward.forward)
        for module in (compiled, in_place, parts, by_forward, plain):
            mode.adopt(module)
        assert in_place._compiled_call_impl is before
        assert [one._compiled_call_impl is not None for one in (compiled, wrapped, parts, by_forward, plain)] == [
            False, False, False, False, True,
        ]  # fmt: skip


def test_a_model_that_a_compiled_function_calls_is_not_compiled_by_itself() -> None:
    mode, model = compile_mode(), Net()
    mode.leave_alone(model)
    mode.adopt(model)
    assert model._compiled_call_impl is None


@pytest.mark.parametrize(
    ("mode", "call", "kept"),
    [
        ("compile", {"mode": "reduce-overhead"}, {"mode": "reduce-overhead"}),
        ("compile", {"options": {"fallback_random": True}}, {"options": {"fallback_random": True}}),
        ("compile", {}, {}),
        ("compile,backend=aot_eager", {"mode": "max-autotune"}, {}),
        ("compile,fallback_random=off", {"options": {"fallback_random": True}}, {}),
        (
            "compile,inductor.max_autotune=off",
            {"options": {"max-autotune": True, "epilogue_fusion": False}},
            {"options": {"epilogue_fusion": False}},
        ),
    ],
    ids=["mode", "options", "none", "another-backend", "the-mode-wins", "the-mode-wins-in-part"],
)
def test_settings_of_the_script_are_kept_where_they_mean_something(
    mode: str, call: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert compile_mode(mode).settings(call.get("mode"), call.get("options"), None) == kept


def test_a_key_of_the_mode_takes_its_option_out_of_the_scripts_mode() -> None:
    kept = compile_mode("compile,inductor.max_autotune=off").settings("max-autotune-no-cudagraphs", None, None)
    assert set(kept) == {"options"}
    assert "max_autotune" not in kept["options"]
    assert kept["options"]["coordinate_descent_tuning"] is True


class Trainer:
    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def step(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(x)
        return out


def test_the_modules_of_a_function_are_found_where_it_reaches_them() -> None:
    model, other = Net(), Net()

    def closed_over(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = other(x)
        return out

    assert modules_called_by(Trainer(model).step, (X,), {}) == [model]
    assert modules_called_by(closed_over, (X,), {}) == [other]
    assert modules_called_by(torch.relu, (model, X), {"head": model.inner}) == [model]
    assert modules_called_by(torch.relu, (X, torch.nn.Tanh()), {}) == []


def test_graph_breaks_are_told_with_their_place() -> None:
    before = len(graph_breaks())

    @torch.compile(backend="eager")
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    assert regions_of(lambda: broken(X)) == 2
    [found] = graph_breaks()[before:]
    line = Path(__file__).read_text(encoding="utf-8").splitlines().index("        torch._dynamo.graph_break()") + 1
    assert found.source == f"{__file__}:{line}"
    assert "graph_break" in found.reason
