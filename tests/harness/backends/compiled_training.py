"""A short training that is compiled and captured, for the tests of the capture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.backends.capturing.compiled_capture import CompiledCapture
from numdrift.harness.records.tools.graph_record import Graph, GraphFolder, Node

Batch = Callable[[int], tuple[torch.Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Captured:
    """What a capture left behind, and what the training came to."""

    graphs: dict[str, Graph]
    events: list[dict[str, Any]]
    losses: list[torch.Tensor]
    parameters: dict[str, torch.Tensor]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    def node(self, graph: str, name: str) -> Node:
        return next(one for one in self.graphs[graph].nodes if one.name == name)

    def bindings(self, graph: str) -> list[str]:
        found = self.graphs[graph]
        return [found.values[one].binding for one in found.inputs]


@contextmanager
def capturing(folder: Path, script: str = __file__) -> Iterator[tuple[CompiledCapture, GraphFolder]]:
    """A capture that is installed, with dynamo as new; both are as before afterwards."""
    torch.compiler.reset()
    graphs = GraphFolder(folder, "compile")
    capture = CompiledCapture(graphs, script)
    capture.install()
    try:
        yield capture, graphs
    finally:
        capture.remove()
        torch.compiler.reset()


def read(folder: Path, losses: Sequence[torch.Tensor] = (), model: torch.nn.Module | None = None) -> Captured:
    """What a capture wrote into this folder."""
    index = folder / "graphs.jsonl"
    lines = index.read_text().splitlines() if index.exists() else []
    graphs = (Graph.from_json(json.loads(file.read_text())) for file in folder.glob("*.json"))
    named = () if model is None else model.named_parameters()
    return Captured(
        {graph.name: graph for graph in graphs},
        [json.loads(line) for line in lines],
        list(losses),
        {name: one.detach().clone() for name, one in named},
    )


def train(
    model: torch.nn.Module,
    batch: Batch,
    *,
    steps: int = 2,
    backend: str = "inductor",
    dynamic: bool | None = None,
    step_begins: Callable[[int], None] = lambda step: None,
) -> list[torch.Tensor]:
    """Train for some steps with SGD, the model compiled in place; gives the losses."""
    torch.manual_seed(1)
    model.compile(backend=backend, dynamic=dynamic)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        step_begins(step)
        optimizer.zero_grad()
        loss = model(*batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    return losses


def train_captured(folder: Path, model: torch.nn.Module, batch: Batch, **options: Any) -> Captured:
    """Train as `train` does, with the graphs captured into this folder."""
    with capturing(folder) as (capture, graphs):
        capture.adopted(model)

        def begin(step: int) -> None:
            if step:
                capture.closing("step")
            graphs.step = step
            capture.reached("step")

        losses = train(model, batch, step_begins=begin, **options)
    return read(folder, losses, model)
