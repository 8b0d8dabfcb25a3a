"""Graphs made by hand, in which every node knows what it truly is: `attributes["truth"]` is the same on both sides."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numdrift.harness.graphs.diff.difference_record import Diff, GraphPlace, NodePair
from numdrift.harness.graphs.diff.graph_comparison import compare_graphs
from numdrift.harness.graphs.run_graphs import RunGraphs, graphs_of
from numdrift.harness.records.tools.graph_record import Graph, Node, Value
from numdrift.harness.runs.recorded_run import load_run

from ..samples import write_run

FLOAT = "float32"
ROWS, WIDTH = 8, 16

LAYER_NORM = ("var_mean", "add", "rsqrt", "sub", "mul", "mul", "add")
GELU = ("mul", "mul", "erf", "add", "mul")
GELU_BACKWARD = ("mul", "mul", "exp", "mul", "add", "mul")
LAYER_NORM_BACKWARD = ("mul", "sum", "sub", "mul", "sub", "mul")


class Builder:
    """Builds one graph node by node; `told` is false where the mode tells no module, source and sequence."""

    def __init__(self, phase: str, *, told: bool = True) -> None:
        self.phase = phase
        self.told = told
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.inputs: list[str] = []
        self.sequence = 0

    def given(self, name: str, binding: str, shape: Sequence[int] = (ROWS, WIDTH)) -> str:
        if name not in self.values:
            self.inputs.append(name)
            self.values[name] = Value(FLOAT, tuple(shape), binding)
        return name

    def bind(self, name: str, binding: str) -> None:
        self.values[name] = replace(self.values[name], binding=binding)

    def op(
        self,
        op: str,
        *inputs: str,
        truth: str = "",
        module: str | None = None,
        shape: Sequence[int] | None = (ROWS, WIDTH),
        dtype: str = FLOAT,
        **fields: Any,
    ) -> str:
        name = f"{op}_{len(self.nodes)}"
        place: dict[str, Any] = {}
        if self.told and module is not None:
            place = {"module": module, "source": f"train.py:{sum(map(ord, module.split('.')[-1]))}"}
        self.nodes.append(
            Node(
                **{
                    "name": name, "op": op, "phase": self.phase, "inputs": inputs, "outputs": (name,),
                    "attributes": {"truth": truth or name}, **place, **fields,
                }
            )
        )  # fmt: skip
        self.values[name] = Value(dtype, None if shape is None else tuple(shape))
        return name

    def call(self, whole: str, parts: Sequence[str], *inputs: str, truth: str, module: str, apart: bool) -> str:
        """An op as one node, or as a chain of parts that each take what the op takes in turn."""
        if not apart:
            return self.op(whole, *inputs, truth=truth, module=module)
        made = inputs[0]
        for number, part in enumerate(parts):
            other = inputs[number % len(inputs)]
            fields: dict[str, Any] = {
                "original": f"aten.{whole}",
                "group": f"{whole}#{len(self.nodes) - number}",
            }
            made = self.op(part, made, other, truth=truth, module=module, **fields)
        return made

    def graph(self, name: str, stage: str = "pre", **fields: Any) -> Graph:
        return Graph(
            name=f"{name}-{stage}", mode="", stage=stage, phase=self.phase, step=0, nodes=tuple(self.nodes),
            values=self.values, inputs=tuple(self.inputs), outputs=(self.nodes[-1].name,), **fields,
        )  # fmt: skip


def transformer(blocks: int, *, apart: bool, told: bool = True, rng: random.Random | None = None) -> list[Graph]:
    """Forward and backward of a pre-norm transformer with about 18 ops a block forward and 45 backward, more where
    layer_norm and gelu are `apart`. With `rng`, the names of the nodes mean nothing."""
    forward, backward = Builder("forward", told=told), Builder("backward", told=told)
    tape: list[Callable[[str], str]] = []
    x = forward.given("x", "input 0")

    def linear(of: str, path: str) -> str:
        weight = forward.given(f"{path}.weight", f"parameter {path}.weight", (WIDTH, WIDTH))
        bias = forward.given(f"{path}.bias", f"parameter {path}.bias", (WIDTH,))
        turned = forward.op("t", weight, truth=f"{path}.t", module=path, shape=(WIDTH, WIDTH))
        made = forward.op("addmm", bias, of, turned, truth=f"{path}.addmm", module=path)

        def back(gradient: str) -> str:
            kept = backward.given(of, f"saved {of}")
            matrix = backward.given(f"{path}.weight", f"parameter {path}.weight", (WIDTH, WIDTH))
            dx = backward.op("mm", gradient, matrix, truth=f"{path}.dx", module=path)
            turned = backward.op("t", gradient, truth=f"{path}.gt", module=path, shape=(WIDTH, ROWS))
            dw = backward.op("mm", turned, kept, truth=f"{path}.dw", module=path, shape=(WIDTH, WIDTH))
            db = backward.op("sum", gradient, truth=f"{path}.db", module=path, shape=(WIDTH,))
            backward.bind(dw, f"gradient {path}.weight")
            backward.bind(db, f"gradient {path}.bias")
            return dx

        backs[made] = back
        return made

    backs: dict[str, Callable[[str], str]] = {}

    def whole(op: str, parts: Sequence[str], back_parts: Sequence[str], of: str, path: str) -> str:
        made = forward.call(op, parts, of, truth=f"{path}.{op}", module=path, apart=apart)

        def back(gradient: str) -> str:
            kept = backward.given(of, f"saved {of}")
            return backward.call(
                f"{op}_backward", back_parts, gradient, kept, truth=f"{path}.{op}_backward", module=path,
                apart=apart,
            )  # fmt: skip

        backs[made] = back
        return made

    for number in range(blocks):
        path = f"blocks.{number}"
        normed = whole("native_layer_norm", LAYER_NORM, LAYER_NORM_BACKWARD, x, f"{path}.norm1")
        q, k, v = (linear(normed, f"{path}.{one}") for one in "qkv")
        scores = forward.op("bmm", q, k, truth=f"{path}.scores", module=path, shape=(ROWS, ROWS))
        scaled = forward.op("div", scores, truth=f"{path}.div", module=path, shape=(ROWS, ROWS))
        softmax = forward.op("_softmax", scaled, truth=f"{path}.softmax", module=path, shape=(ROWS, ROWS))
        mixed = forward.op("bmm", softmax, v, truth=f"{path}.mixed", module=path)
        out = linear(mixed, f"{path}.out")
        x1 = forward.op("add", x, out, truth=f"{path}.add1", module=path)
        normed2 = whole("native_layer_norm", LAYER_NORM, LAYER_NORM_BACKWARD, x1, f"{path}.norm2")
        up = linear(normed2, f"{path}.up")
        bent = whole("gelu", GELU, GELU_BACKWARD, up, f"{path}.gelu")
        down = linear(bent, f"{path}.down")
        x = forward.op("add", x1, down, truth=f"{path}.add2", module=path)

        def back_block(gradient: str, path: str = path, of: tuple[str, ...] = (
            normed, q, k, v, scaled, softmax, out, normed2, up, bent, down,
        )) -> str:  # fmt: skip
            normed, q, k, v, _, softmax, out, normed2, up, bent, down = of
            mlp = backs[normed2](backs[up](backs[bent](backs[down](gradient))))
            g1 = backward.op("add", gradient, mlp, truth=f"{path}.gadd1", module=path)
            gm = backs[out](g1)
            kept = {one: backward.given(one, f"saved {one}") for one in (q, k, v, softmax)}
            gv = backward.op("bmm", kept[softmax], gm, truth=f"{path}.gv", module=path)
            gs = backward.op("bmm", gm, kept[v], truth=f"{path}.gs", module=path, shape=(ROWS, ROWS))
            sm = backward.op(
                "_softmax_backward_data",
                gs,
                kept[softmax],
                truth=f"{path}.gsm",
                module=path,
                shape=(ROWS, ROWS),
            )
            gd = backward.op("div", sm, truth=f"{path}.gdiv", module=path, shape=(ROWS, ROWS))
            gk = backward.op("bmm", kept[q], gd, truth=f"{path}.gk", module=path)
            gq = backward.op("bmm", gd, kept[k], truth=f"{path}.gq", module=path)
            first = backward.op("add", backs[v](gv), backs[k](gk), truth=f"{path}.gkv", module=path)
            all_of = backward.op("add", first, backs[q](gq), truth=f"{path}.gqkv", module=path)
            return backward.op("add", g1, backs[normed](all_of), truth=f"{path}.gadd2", module=path)

        tape.append(back_block)
    gradient = backward.given("tangent", "gradient output 0")
    for step_back in reversed(tape):
        gradient = step_back(gradient)
    graphs = [forward.graph("0-forward"), backward.graph("0-backward")]
    return graphs if rng is None else renamed(graphs, rng)


def renamed(graphs: Sequence[Graph], rng: random.Random) -> list[Graph]:
    """The same graphs with other names for all nodes, values and groups."""
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return names.setdefault(name, f"n{rng.getrandbits(40):x}_{len(names)}")

    def binding(text: str) -> str:
        kind, _, rest = text.partition(" ")
        return f"saved {new(rest)}" if kind == "saved" else text

    return [
        replace(
            graph,
            nodes=tuple(
                replace(
                    node,
                    name=new(node.name),
                    inputs=tuple(map(new, node.inputs)),
                    outputs=tuple(map(new, node.outputs)),
                    group=new(node.group) if node.group else "",
                )
                for node in graph.nodes
            ),
            values={new(name): replace(value, binding=binding(value.binding)) for name, value in graph.values.items()},
            inputs=tuple(map(new, graph.inputs)),
            outputs=tuple(map(new, graph.outputs)),
        )
        for graph in graphs
    ]


def recorded(folder: Path, mode: str, graphs: Sequence[Graph], **facts: Any) -> RunGraphs:
    return graphs_of(load_run(write_run(folder, mode, graphs, **facts)))


def compared(folder: Path, a: Sequence[Graph], b: Sequence[Graph]) -> Diff:
    """The difference of two runs, the modes `lazy` and `compile`, that executed these graphs once."""
    return compare_graphs(recorded(folder, "lazy", a), recorded(folder, "compile", b))


def truths(graphs: Sequence[Graph]) -> dict[GraphPlace, str]:
    return {
        GraphPlace(graph.name, node.name): str(node.attributes["truth"]) for graph in graphs for node in graph.nodes
    }


def wrong_pairs(diff: Diff, a: Sequence[Graph], b: Sequence[Graph]) -> list[NodePair]:
    """The pairs that put together what is not the same."""
    true_a, true_b = truths(a), truths(b)
    return [
        pair
        for pair in diff.pairs
        if pair.a and pair.b and {true_a[one] for one in pair.a} != {true_b[one] for one in pair.b}
    ]
