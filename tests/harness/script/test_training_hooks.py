from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest
import torch
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

from numdrift.harness.backends.compiled.mode import CompileMode
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.module_calls import ModuleCalls
from numdrift.harness.script.script_compiling import ScriptCompiles
from numdrift.harness.script.script_losses import Found, Function, differentiates_parameters
from numdrift.harness.script.training_hooks import Hooks
from numdrift.harness.script.understood import ScriptNotes
from numdrift.reproducers.sam import SAM

COMPILES = ScriptCompiles(
    CompileMode(parse_mode("compile,backend=eager")),
    ScriptNotes(AdoptionFacts(lambda *_, **__: None), __file__),
)


class Seen:
    """An observer that lists what it is told."""

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []
        self.arguments: list[tuple[Sequence[Any], Mapping[str, Any]]] = []
        self.losses: list[list[torch.Tensor]] = []
        self.backwards = 0
        self.started: list[tuple[Optimizer, list[float]]] = []
        self.steps: list[Optimizer] = []
        self.made: list[Optimizer] = []
        self.skipped: list[Optimizer] = []
        self.functions: list[Sequence[Any]] = []
        self.gradients: list[Sequence[Any]] = []
        self.scaled: list[tuple[Any, Any]] = []

    def module_returned(self, module: torch.nn.Module, outputs: Any) -> None:
        pass

    def module_called(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.modules.append(module)
        self.arguments.append((args, kwargs))

    def backward_started(self, losses: list[torch.Tensor], found: Found) -> None:
        self.losses.append(losses)

    def step_skipped(self, optimizer: Optimizer) -> None:
        self.skipped.append(optimizer)

    def replaces_backward(self, outputs: Any, inputs: Any, arguments: Mapping[str, Any]) -> bool:
        return differentiates_parameters(outputs, inputs, arguments, plain=True)

    def function_called(self, arguments: Sequence[Any]) -> None:
        self.functions.append(arguments)

    def adopted(self, function: Function) -> Function | None:
        return None

    def function_returned(self, arguments: Sequence[Any], gradients: Any, loss: Any) -> None:
        raise AssertionError("no function was adopted")

    def gradients_taken(self, outputs: Any, inputs: Any, results: Sequence[Any]) -> None:
        self.gradients.append(results)

    def loss_scaled(self, losses: Any, results: Any) -> None:
        self.scaled.append((losses, results))

    def module_reached(self, module: torch.nn.Module) -> None:
        self.modules.append(module)

    def backward_ended(self) -> None:
        self.backwards += 1

    def step_started(self, optimizer: Optimizer) -> None:
        self.started.append((optimizer, optimizer.param_groups[0]["params"][0].tolist()))

    def step_ended(self, optimizer: Optimizer) -> None:
        self.steps.append(optimizer)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self.made.append(optimizer)


@contextmanager
def observed() -> Iterator[Seen]:
    seen = Seen()
    hooks = Hooks(seen, seen, COMPILES)
    hooks.install()
    try:
        yield seen
    finally:
        hooks.remove()


def hooked_places() -> list[Any]:
    """What torch has where the hooks go."""
    return [
        torch.nn.Module.__dict__["__call__"],
        torch.autograd.backward,
        torch.autograd.grad,
        torch.func.grad,
        torch.func.grad_and_value,
        torch.amp.GradScaler.__dict__["scale"],
        torch.amp.GradScaler.__dict__["step"],
        Optimizer.__dict__["__init__"],
        dict(_global_optimizer_pre_hooks),
        dict(_global_optimizer_post_hooks),
    ]


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor([1.0, 2.0]))


class Failing(torch.optim.SGD):
    """An optimizer whose first step raises."""

    failed = False

    def step(self, closure: Any = None) -> Any:
        if not self.failed:
            self.failed = True
            raise RuntimeError("out of luck")
        return super().step(closure)


class FirstStepFails(SAM):
    """A wrapper whose base optimizer raises in its first step."""

    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__([weight], Failing, lr=0.1)


def test_every_hook_is_taken_out_again() -> None:
    # given
    before = hooked_places()
    # when
    with observed():
        during = hooked_places()
    # then
    assert all(one is not other for one, other in zip(before[:-2], during[:-2], strict=True))
    assert all(len(other) == len(one) + 1 for one, other in zip(before[-2:], during[-2:], strict=True))
    assert hooked_places() == before


def test_nothing_is_seen_after_removal() -> None:
    with observed() as seen:
        pass
    weight = parameter()
    optimizer = torch.optim.SGD([weight])
    torch.nn.Linear(2, 1)(weight).sum().backward()
    optimizer.step()
    assert not seen.modules and not seen.losses and not seen.steps


def test_an_optimizer_counts_once_a_step() -> None:
    with observed() as seen:
        weight = parameter()
        optimizer = torch.optim.Adam([weight])
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
    assert seen.steps == [optimizer] * 3


def test_a_step_with_a_closure_counts_once() -> None:
    with observed() as seen:
        weight = parameter()
        optimizer = SAM([weight], torch.optim.SGD, lr=0.1)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = weight.square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
    assert seen.steps == [optimizer] * 3
    assert len(seen.losses) == seen.backwards == 6


def test_two_passes_without_an_outer_step_count_once() -> None:
    with observed() as seen:
        weight = parameter()
        optimizer = SAM([weight], torch.optim.SGD, lr=0.1)
        for _ in range(2):
            weight.square().sum().backward()
            optimizer.first_step(zero_grad=True)
            weight.square().sum().backward()
            optimizer.second_step(zero_grad=True)
    assert seen.steps == [optimizer.base_optimizer] * 2


def test_two_optimizers_count_each() -> None:
    with observed() as seen:
        one, other = torch.optim.SGD([parameter()]), torch.optim.SGD([parameter()])
        one.step()
        other.step()
        one.step()
    assert seen.steps == [one, other, one]


@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
def test_an_exception_inside_a_step_does_not_break_later_counting(nested: bool) -> None:
    with observed() as seen:
        weight = parameter()
        weight.grad = torch.ones(2)
        optimizer: Any = FirstStepFails(weight) if nested else Failing([weight], lr=0.1)
        arguments = [lambda: weight.sum()] if nested else []
        with pytest.raises(RuntimeError, match="out of luck"):
            optimizer.step(*arguments)
        if nested:
            optimizer._weights.clear()
        assert seen.steps == []
        optimizer.step(*arguments)
        optimizer.step(*arguments)
    assert seen.steps == [optimizer, optimizer]


def test_a_new_optimizer_counts_although_the_old_one_failed_in_its_step() -> None:
    with observed() as seen:
        old = Failing([parameter()], lr=0.1)
        with suppress(RuntimeError):
            old.step()
        new = torch.optim.SGD([parameter()])
        new.step()
        old.step()
    assert seen.steps == [new, old]


def test_an_inner_optimizer_made_during_the_step_counts_no_second_one() -> None:
    class Late(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            torch.optim.SGD(self.param_groups[0]["params"]).step()

    with observed() as seen:
        optimizer = Late([parameter()])
        optimizer.step()
    assert len(seen.steps) == 1


def by_method(loss: torch.Tensor) -> None:
    loss.backward()


def by_function(loss: torch.Tensor) -> None:
    torch.autograd.backward(loss)


def by_keyword(loss: torch.Tensor) -> None:
    torch.autograd.backward(tensors=[loss])


@pytest.mark.parametrize("backward", [by_method, by_function, by_keyword])
def test_each_backward_is_reported_with_its_loss(backward: Callable[[torch.Tensor], None]) -> None:
    with observed() as seen:
        weight = parameter()
        first, second = weight.sum(), weight.square().sum()
        backward(first)
        backward(second)
    assert [[id(one) for one in losses] for losses in seen.losses] == [[id(first)], [id(second)]]
    assert seen.backwards == 2
    assert weight.grad is not None and weight.grad.tolist() == [3.0, 5.0]


def test_one_backward_from_several_losses_is_one() -> None:
    with observed() as seen:
        weight = parameter()
        torch.autograd.backward([weight[0], weight[1]])
    assert [len(losses) for losses in seen.losses] == [2]


def test_a_backward_inside_a_backward_is_not_reported() -> None:
    # given activation checkpointing, which calls torch.autograd.backward during backward
    with observed() as seen:
        weight = parameter()
        loss = checkpoint(lambda value: value.square().sum(), weight * 1.0, use_reentrant=True)
        # when
        loss.backward()
        # then
        assert [losses[0] is loss for losses in seen.losses] == [True]
        assert seen.backwards == 1
        # and the next one is an outermost one again
        weight.sum().backward()
    assert seen.backwards == 2


def test_a_backward_that_fails_does_not_hide_later_ones() -> None:
    with observed() as seen:
        weight = parameter()
        with pytest.raises(RuntimeError):
            weight.backward()  # no scalar
        weight.sum().backward()
    assert len(seen.losses) == 2
    assert seen.backwards == 1


def test_root_modules_alone_are_seen() -> None:
    with observed() as seen:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
        criterion = torch.nn.MSELoss()
        for _ in range(2):
            criterion(model(torch.zeros(1, 2)), torch.zeros(1, 2))
    assert [id(module) for module in seen.modules] == [id(model), id(criterion)] * 2


def test_inside_a_module_call_torch_is_untouched() -> None:
    # given
    original = torch.nn.Module.__call__
    inside: list[object] = []

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inside.append(torch.nn.Module.__call__)
            return x

    calls = ModuleCalls(lambda *_: inside.append(torch.nn.Module.__call__))
    calls.open()
    try:
        # when
        Model()(torch.zeros(1))
        # then neither the observer nor the module sees the replacement, which is back after the call
        assert inside == [original, original]
        assert torch.nn.Module.__call__ is not original
    finally:
        calls.close()
    assert torch.nn.Module.__call__ is original


def test_calls_whose_replacement_stays_are_the_outermost_ones() -> None:
    # given a module that fails at every second call, and modules inside it
    original = torch.nn.Module.__call__
    seen: list[torch.nn.Module] = []
    inside: list[bool] = []

    class Model(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inside.append(calls.outside)
            for part in self:
                x = part(x)
            if len(inside) % 2 == 0:
                raise ValueError
            return x

    calls = ModuleCalls(lambda module, args, kwargs: seen.append(module), stays=True)
    calls.open()
    try:
        # when
        replaced = torch.nn.Module.__call__
        model = Model(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Tanh()))
        for number in range(4):
            with pytest.raises(ValueError) if number % 2 else nullcontext():
                model(torch.zeros(1, 2))
        # then
        assert [id(module) for module in seen] == [id(model)] * 4
        assert inside == [False] * 4
        assert calls.outside
        assert torch.nn.Module.__call__ is replaced
    finally:
        calls.close()
    assert torch.nn.Module.__call__ is original


def test_a_module_that_raises_leaves_the_next_call_observed() -> None:
    with observed() as seen:
        model = torch.nn.Linear(2, 2)
        with pytest.raises(RuntimeError):
            model(torch.zeros(1, 3))
        model(torch.zeros(1, 2))
    assert len(seen.modules) == 2


def test_calls_closed_by_their_observer_stay_closed() -> None:
    # given
    original = torch.nn.Module.__call__
    seen: list[torch.nn.Module] = []

    def called(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        seen.append(module)
        calls.close()

    calls = ModuleCalls(called)
    calls.open()
    model = torch.nn.Linear(2, 2)
    # when
    model(torch.zeros(1, 2))
    model(torch.zeros(1, 2))
    # then
    assert len(seen) == 1
    assert torch.nn.Module.__call__ is original


def test_a_new_optimizer_opens_the_calls_again() -> None:
    # given module calls that are no longer observed, since the models are known
    seen = Seen()
    hooks = Hooks(seen, seen, COMPILES)
    hooks.install()
    try:
        hooks.calls.close()
        model = torch.nn.Linear(2, 2)
        model(torch.zeros(1, 2))
        assert not seen.modules
        # when the script begins to train something else
        torch.optim.SGD(model.parameters())
        model(torch.zeros(1, 2))
        # then
        assert len(seen.modules) == 1
    finally:
        hooks.remove()


def test_a_call_is_reported_with_its_arguments() -> None:
    x = torch.zeros(1, 2)
    with observed() as seen:
        torch.nn.Linear(2, 2)(input=x)
        torch.nn.MSELoss()(x, x)
    [(first, named), (second, none)] = seen.arguments
    assert first == () and list(named) == ["input"] and named["input"] is x
    assert [one is x for one in second] == [True, True] and none == {}


def test_a_step_is_reported_before_it_changes_anything_and_without_those_inside_it() -> None:
    # given a wrapper whose step runs the step of its base optimizer
    with observed() as seen:
        weight = parameter()
        optimizer = SAM([weight], torch.optim.SGD, lr=0.5)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = weight.square().sum()
            loss.backward()
            return loss

        # when
        before = weight.tolist()
        optimizer.step(closure)
        after = weight.tolist()
        optimizer.step(closure)
    # then
    assert before != after
    assert seen.started == [(optimizer, before), (optimizer, after)]


class Own(torch.nn.Module):
    """A model whose forward is not a file of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x))


def compiled_model(model: torch.nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def compiled_function(model: torch.nn.Module) -> Any:
    return torch.compile(lambda x: model(x) * 2, backend="eager")


@pytest.mark.parametrize("compiled", [compiled_model, compiled_function])
def test_what_a_script_compiles_is_traced_as_without_hooks(
    compiled: Callable[[torch.nn.Module], Any],
) -> None:
    # given
    counters = torch._dynamo.utils.counters

    def traced() -> dict[str, dict[str, int]]:
        torch._dynamo.reset()
        counters.clear()
        function = compiled(Own())
        function(torch.ones(1, 2))
        function(torch.ones(1, 2))
        return {name: dict(counters[name]) for name in ("frames", "stats", "graph_break")}

    alone = traced()
    # when
    with observed():
        under_hooks = traced()
    # then
    assert alone["frames"]["ok"] == 1
    assert under_hooks == alone


def test_a_compilation_inside_a_module_call_leaves_torch_untouched_in_it() -> None:
    # given
    inside: list[bool] = []
    original = torch.nn.Module.__call__

    class Compiling(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.compile(torch.nn.Linear(2, 2), backend="eager")
            inside.append(torch.nn.Module.__call__ is original)
            return x

    # when
    with observed() as seen:
        Compiling()(torch.zeros(1))
        Compiling()(torch.zeros(1))
    # then
    assert inside == [True, True] and len(seen.modules) == 2


def test_optimizers_that_step_within_a_backward_end_one_step_with_it() -> None:
    # given
    first, second = parameter(), parameter()
    optimizers = {one: torch.optim.SGD([one], lr=0.5) for one in (first, second)}
    order: list[str] = []
    for one, optimizer in optimizers.items():
        one.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    # when
    with observed() as seen:
        for _ in range(2):
            (first * second).sum().backward()
            order += [f"{seen.backwards} backwards, {len(seen.steps)} steps"]
    # then
    assert order == ["1 backwards, 1 steps", "2 backwards, 2 steps"]
    assert len(seen.started) == 4
