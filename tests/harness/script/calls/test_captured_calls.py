"""Calls of what a script compiles: captured while it runs eagerly."""

from __future__ import annotations

import torch

from numdrift.harness.script.calls.call_steps import expected_results
from numdrift.harness.script.calls.captured_calls import MOST, CallCapture


def captured(script: str) -> CallCapture:
    calls = CallCapture("script.py")
    with calls.capturing():
        exec(compile(script, "script.py", "exec"), {"torch": torch})  # noqa: S102, the script of the test
    return calls


FUNCTION = """
def scaled(x, y):
    x.add_(1)
    return x * y
"""


def test_the_inputs_are_those_before_the_call() -> None:
    found = captured(f"{FUNCTION}\nx = torch.zeros(3)\ntorch.compile(scaled, dynamic=True)(x, y=torch.ones(3))")
    (call,) = found.compiled
    assert call.args[0].tolist() == [0, 0, 0]
    assert call.kwargs["y"].tolist() == [1, 1, 1]
    assert call.compiled_with == {"dynamic": True}
    assert call.label == "script.py:7"


def test_decorators_modules_and_methods() -> None:
    script = """
@torch.compile
def double(x): return x * 2
@torch.compile(fullgraph=True)
def triple(x): return double(x) + x
linear = torch.compile(torch.nn.Linear(3, 3))
other = torch.nn.Linear(3, 3)
other.compile()
x = torch.ones(2, 3)
double(x); triple(x); linear(x); other(x)
assert linear.in_features == 3 and len(list(linear.parameters())) == 2
"""
    names = [getattr(call.function, "__name__", type(call.function).__name__) for call in captured(script).compiled]
    assert names == ["double", "triple", "Linear", "Linear"]  # the call of `double` in `triple` is a part of it


def test_an_eager_call_of_a_compiled_module_is_none() -> None:
    script = (
        "model = torch.nn.Linear(3, 3)\ncompiled = torch.compile(model)\nx = torch.ones(2, 3)\nmodel(x); compiled(x)"
    )
    assert len(captured(script).compiled) == 1


def test_nothing_is_compiled_and_torch_is_put_back() -> None:
    before = torch.compile, torch.nn.Module.compile, torch.nn.Module.__call__
    captured(f"{FUNCTION}\ntorch.compile(scaled)(torch.zeros(3), torch.ones(3))")
    assert (torch.compile, torch.nn.Module.compile, torch.nn.Module.__call__) == before


def test_contexts_are_kept() -> None:
    script = f"""{FUNCTION}
f = torch.compile(scaled)
x = torch.zeros(3, requires_grad=True)
with torch.no_grad():
    f(x, x)
with torch.autocast("cpu", dtype=torch.bfloat16):
    f(x * 1, x)
"""
    without, mixed = captured(script).compiled
    assert not without.grad
    with without.surroundings():
        assert not torch.is_grad_enabled()
    assert mixed.grad
    assert mixed.computed == {"x"}
    with mixed.surroundings():
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16


def test_a_script_that_compiles_nothing_calls_modules() -> None:
    found = captured("model = torch.nn.Sequential(torch.nn.Linear(3, 3))\nmodel(torch.ones(1, 3))")
    assert not found.compiled
    (call,) = found.of_modules
    assert isinstance(call.function, torch.nn.Sequential)
    assert not found.trains
    assert captured("torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)").trains


def test_calls_of_one_line_have_different_names() -> None:
    found = captured(f"{FUNCTION}\nf = torch.compile(scaled)\nfor _ in range(3): f(torch.ones(1), 2)")
    assert [call.label for call in found.compiled] == [
        "script.py:7",
        "script.py:7 (call 2)",
        "script.py:7 (call 3)",
    ]


def test_inference_mode_is_left_behind() -> None:
    script = f"{FUNCTION}\nwith torch.inference_mode():\n    torch.compile(scaled)(torch.ones(2), torch.ones(2))"
    (call,) = captured(script).compiled
    assert expected_results(call)
    assert not call.grad


def test_only_the_first_calls_are_kept() -> None:
    found = captured(f"{FUNCTION}\nf = torch.compile(scaled)\nfor _ in range({MOST + 3}): f(torch.ones(1), 2)")
    assert len(found.compiled) == MOST
    assert found.further == 3
