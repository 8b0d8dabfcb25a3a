"""Pages made from hand-made graphs: the founding case, and a long chain of layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from numdrift.harness.graphs.culprit_marks import Mark
from numdrift.harness.graphs.diff.difference_record import Cast, Diff, GraphPlace, NodePair, OpCount, Side
from numdrift.harness.graphs.page.diff_page import NO_DRIFT, write_page
from numdrift.harness.graphs.page.page_data import Drift
from numdrift.harness.graphs.run_graphs import RunGraphs, graphs_of
from numdrift.harness.records.tools.graph_record import Cut, Graph, Value
from numdrift.harness.runs.recorded_run import load_run

from ..samples import node, sample_compile_backward, sample_compile_forward, sample_lazy_backward, write_run

BACKWARD = "0-backward-pre"
FOUNDING_ANSWER = "lazy keeps tanh_backward whole while compile decomposes it to mul, sub, mul."
SAME = (
    ("mm", "mm"), ("permute_2", "t"), ("mm_1", "mm_1"), ("sum_1", "sum"), ("view", "view"), ("permute_3", "t_1"),
    ("mm_2", "mm_2"), ("sum_2", "sum_1"), ("view_1", "view_1"),
)  # fmt: skip
CULPRIT = Mark(
    "aten.tanh_backward",
    {"max_ulp": 724.0, "rho": 0.4211987},
    "aten.tanh_backward drifts from lazy at step 0",
)


def places(graph: str, *names: str) -> tuple[GraphPlace, ...]:
    return tuple(GraphPlace(graph, name) for name in names)


def founding_pairs() -> list[NodePair]:
    """Each node of compile's backward with its counterpart in lazy's; permute is t there."""
    pairs = [
        NodePair(
            "replaced" if "permute" in a else "same", "backward", "aten.t" if "permute" in a else "aten.mm",
            places(BACKWARD, a), places(BACKWARD, b), "module, source", "net.0",
        )
        for a, b in SAME
    ]  # fmt: skip
    group = NodePair(
        "group", "backward", "aten.tanh_backward", places(BACKWARD, "mul", "sub", "mul_1"),
        places(BACKWARD, "tanh_backward"), "module, source, sequence", "net.1",
    )  # fmt: skip
    return [*pairs[:5], group, *pairs[5:]]


def side(mode: str, graphs: tuple[str, ...], post: tuple[str, ...] = (), **facts: int) -> Side:
    return Side(
        run=f"runs/mlp/{mode}_main", mode=mode, step=0, graphs=graphs, post_graphs=post,
        graphs_in_step=facts.get("graphs_in_step", 2), cuts={"mark_step": 1} if mode == "lazy" else {},
        nodes=facts.get("nodes", 17), kernels=facts.get("kernels", 5 if post else 0),
    )  # fmt: skip


def founding_diff() -> Diff:
    return Diff(
        a=side("compile", ("0-forward-pre", BACKWARD), ("0-backward-post",)),
        b=side("lazy", (BACKWARD,)),
        answers=[
            FOUNDING_ANSWER,
            "compile has 2 graphs in step 0, lazy 1; mark_step cut it once.",
            "9 of 12 nodes in compile's backward have the same op in lazy.",
        ],
        counts=[
            OpCount("backward", "aten.mm", 3, 3),
            OpCount("backward", "aten.mul", 2, 0),
            OpCount("backward", "aten.sub", 1, 0),
            OpCount("backward", "aten.tanh_backward", 0, 1),
            OpCount("backward", "aten.sum", 2, 2),
        ],
        pairs=founding_pairs(),
        casts=[Cast("a", "backward", "float32", "bfloat16", 2, places(BACKWARD, "mm_2"))],
    )


def founding_runs(folder: Path) -> tuple[RunGraphs, RunGraphs]:
    pre, post = sample_compile_backward()
    compile_ = write_run(folder, "compile", [sample_compile_forward(), pre, post])
    lazy = write_run(folder, "lazy", [sample_lazy_backward()])
    return graphs_of(load_run(compile_)), graphs_of(load_run(lazy))


def founding_page(folder: Path, drift: Drift = NO_DRIFT) -> str:
    marked = dict.fromkeys(("mul", "sub", "mul_1"), CULPRIT)
    marks_a = {BACKWARD: marked, "0-backward-post": {"cpp_fused_mul_sub_sum_tanh_backward_view_1": CULPRIT}}
    return write_page(founding_diff(), *founding_runs(folder), marks_a, {BACKWARD: {"tanh_backward": CULPRIT}}, drift)


def many_answers_page(folder: Path, answers: int) -> str:
    """The founding case with so many answers, each long enough for two lines."""
    said = [f"answer {number}: {FOUNDING_ANSWER} {'It does so in every layer. ' * 4}" for number in range(answers)]
    return write_page(replace(founding_diff(), answers=said), *founding_runs(folder))


def chain(mode: str, layers: int, whole: frozenset[int] = frozenset()) -> Graph:
    """Layers of linear, activation and a residual add, one after the other; in the layers `whole` the activation is
    one op, elsewhere it is three."""
    nodes, last = [], "x"
    for layer in range(layers):
        place = {"phase": "forward", "module": f"layers.{layer}", "source": f"train.py:{layer}"}
        nodes.append(node("mm", f"mm_{layer}", {"self": last, "mat2": f"w_{layer}"}, **place))
        if layer in whole:
            nodes.append(node("gelu", f"gelu_{layer}", {"self": f"mm_{layer}"}, **place))
            out = f"gelu_{layer}"
        else:
            nodes.append(node("erf", f"erf_{layer}", {"self": f"mm_{layer}"}, **place))
            nodes.append(node("mul", f"mul_{layer}", {"self": f"erf_{layer}", "other": f"mm_{layer}"}, **place))
            out = f"mul_{layer}"
        nodes.append(node("add", f"add_{layer}", {"self": out, "other": last}, **place))
        last = f"add_{layer}"
    names = [one.name for one in nodes]
    weights = [f"w_{layer}" for layer in range(layers)]
    values = {name: Value("float32", (64, 64)) for name in ("x", *names)}
    values |= {name: Value("float32", (64, 64), f"parameter layers.{name[2:]}.weight") for name in weights}
    return Graph(
        name="0-forward-pre", mode=mode, stage="pre", phase="forward", step=0, nodes=tuple(nodes), values=values,
        inputs=("x", *weights), outputs=(last,),
    )  # fmt: skip


def chain_page(folder: Path, layers: int, whole: int) -> str:
    """Two long chains that differ in one layer: B has its activation in one piece."""
    a, b = chain("compile", layers), chain("lazy", layers, frozenset({whole}))
    name, b_names = a.name, {one.name for one in b.nodes}
    pairs = [
        NodePair("same", "forward", f"aten.{one.op}", places(name, one.name), places(name, one.name), "module")
        for one in a.nodes
        if one.name in b_names
    ]
    split = places(name, f"erf_{whole}", f"mul_{whole}")
    pairs.append(NodePair("group", "forward", "aten.gelu", split, places(name, f"gelu_{whole}"), "module"))
    counts = [OpCount("forward", "aten.gelu", 0, 1)]
    diff = Diff(side("compile", (name,)), side("lazy", (name,)), ["compile decomposes gelu once."], counts, pairs, [])
    runs = [write_run(folder, graph.mode, [graph]) for graph in (a, b)]
    return write_page(diff, graphs_of(load_run(runs[0])), graphs_of(load_run(runs[1])))


def cut_page(folder: Path, source: str = "train.py:33") -> str:
    """Lazy's backward in two graphs against compile's in one, where one op of each side is alone; a mark_step at
    `source` ends the first of the two."""
    pre, _ = sample_compile_backward()
    whole = sample_lazy_backward()
    first = replace(
        whole, nodes=whole.nodes[:6], outputs=("mm_1", "view", "tanh_backward"), cut=Cut("mark_step", source=source)
    )  # fmt: skip
    rest = replace(
        whole, name="0-backward-2-pre", nodes=whole.nodes[6:], cut=None, inputs=("tanh_backward", "p3"),
        outputs=("mm_2", "view_1"),
    )  # fmt: skip
    moved = {one.name for one in rest.nodes}
    pairs = [
        replace(pair, b=[GraphPlace(rest.name if b.node in moved else b.graph, b.node) for b in pair.b])
        for pair in founding_pairs()
        if pair.kind != "replaced"
    ]
    pairs.append(NodePair("only-a", "backward", "aten.t", a=places(BACKWARD, "permute_2")))
    pairs.append(NodePair("only-b", "backward", "aten.t", b=places(BACKWARD, "t")))
    diff = replace(founding_diff(), a=side("compile", (BACKWARD,)), b=side("lazy", (BACKWARD, rest.name)), pairs=pairs)
    a = graphs_of(load_run(write_run(folder, "compile", [pre])))
    b = graphs_of(load_run(write_run(folder, "lazy", [first, rest])))
    return write_page(diff, a, b)
