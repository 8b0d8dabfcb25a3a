"""The paths of running modules against those of hooks, in modules, methods and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from numdrift.harness.tape.module_frames import ModuleFrames
from numdrift.kernels.swaps.sites import ModulePaths


class Told(nn.Module):
    """Calls `tell` when it runs."""

    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self.tell = tell

    def forward(self) -> None:
        self.tell()


class Outer(nn.Module):
    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Told(tell), Told(tell)])
        self.tell = tell

    def forward(self) -> None:
        self.tell()
        for block in self.blocks:
            block()
        Told(self.tell)()  # of no module


def test_running_modules_are_named_as_by_hooks() -> None:
    # given
    frames, found = ModuleFrames(), list[tuple[str | None, str | None]]()
    hooks = ModulePaths()

    def tell() -> None:
        found.append((frames.current, hooks.current))

    # when: the model, a part of it alone, and no module
    try:
        outer = Outer(tell)
        outer()
        outer.blocks[1]()
        tell()
    finally:
        hooks.close()
    # then
    assert found[:5] == [("", ""), ("blocks.0", "blocks.0"), ("blocks.1", "blocks.1"), ("Told", "Told"), ("", "")]
    assert found[5:] == [(None, None)]


def test_the_model_that_torch_compile_wraps_keeps_its_names() -> None:
    frames, found = ModuleFrames(), list[str | None]()
    outer = Outer(torch.compiler.disable(lambda: found.append(frames.current)))
    torch.compile(outer, backend="eager")()
    assert found == ["", "blocks.0", "blocks.1", "Told"]
    torch.compiler.reset()


class Trainer:
    """No module, but has one."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def paths(self, *expressions: tuple[str, Any]) -> Mapping[str, str]:
        return ModuleFrames().paths(expressions)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"in": nn.LayerNorm(2)}))


def test_expressions_are_read_in_the_function_that_was_compiled() -> None:
    # given a trainer, two variables, and one of another class with the same name further in
    def function(model: nn.Module, pair: list[nn.Module], self: object) -> Mapping[str, str]:
        return ModuleFrames().paths(
            [
                ("L['model']", nn.Sequential),
                ("L['model']._modules['0']", nn.Linear),
                ("L['model'][1]['in']", nn.LayerNorm),
                ("L['pair'][0]", nn.Linear),
                ("L['pair'][7]", nn.Linear),
                ("L['model']._modules['0']._modules['weight']", nn.Linear),
                ("L['nothing']", nn.Linear),
                ("G['Trainer'].model", nn.Linear),
                ("something else", nn.Linear),
            ]
        )

    model = net()
    assert function(model, [nn.Linear(2, 2)], self=None) == {
        "L['model']": "",
        "L['model']._modules['0']": "0",
        "L['model'][1]['in']": "1.in",
        "L['pair'][0]": "",
    }
    trainer = Trainer(model)
    assert trainer.paths(("L['self'].model[1]['in']", nn.LayerNorm)) == {"L['self'].model[1]['in']": "1.in"}
    assert trainer.paths(("L['self'].model[1]['in']", nn.Linear)) == {}


def test_one_function_runs_for_many_modules() -> None:
    found: list[Mapping[str, str]] = []

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(2)

        def forward(self) -> None:
            found.append(ModuleFrames().paths([("L['self'].norm", nn.LayerNorm)]))

    model = nn.Module()
    model.blocks = nn.ModuleList([Block(), Block()])
    model.forward = lambda: [block() for block in model.blocks]  # type: ignore[union-attr]
    model()
    assert found == [{"L['self'].norm": "blocks.0.norm"}, {"L['self'].norm": "blocks.1.norm"}]
