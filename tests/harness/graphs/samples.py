"""Graphs of one tanh MLP, made by hand: what compile and lazy mode would record of it, and the run around them.

The model is Linear(4, 16), Tanh, Linear(16, 1) under the names net.0, net.1 and net.2, on 8 rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numdrift.harness.records.tools.graph_record import FOLDER, Cut, Graph, GraphFolder, Node, Value
from numdrift.harness.runs.manifest import RunManifest

STACK = 'File "train.py", line 31, in <module>\n    train()\nFile "train.py", line 20, in forward\n    {code}'

TANH_BACKWARD_CODE = """\
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(float* in_out_ptr0, const float* in_ptr0, float* out_ptr0)
{
    for (int64_t x0 = 0; x0 < 128; x0 += 16)
    {
        auto tmp0 = at::vec::Vectorized<float>::loadu(in_out_ptr0 + x0, 16);
        auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr0 + x0, 16);
        auto tmp2 = tmp1 * tmp1;
        auto tmp3 = at::vec::Vectorized<float>(1.0f) - tmp2;
        auto tmp4 = tmp0 * tmp3;
        tmp4.store(in_out_ptr0 + x0);
    }
}
"""

SUM_CODE = """\
extern "C" void kernel(const float* in_ptr0, float* out_ptr0)
{
    float tmp_acc0 = 0;
    for (int64_t x0 = 0; x0 < 8; x0 += 1)
    {
        auto tmp0 = in_ptr0[x0];
        tmp_acc0 = tmp_acc0 + tmp0;
    }
    out_ptr0[0] = tmp_acc0;
}
"""

FLOAT = "float32"


def node(op: str, name: str, inputs: Mapping[str, str] | None = None, **fields: Any) -> Node:
    """A node with one output of its own name; `inputs` are the values by the names of their arguments."""
    given = inputs or {}
    return Node(
        **{
            "name": name,
            "op": op,
            "inputs": tuple(given.values()),
            "input_names": tuple(given),
            "outputs": (name,),
            **fields,
        }
    )


def _linear(path: str, line: int, sequence: int) -> dict[str, Any]:
    code = f"self.{path}(x)"
    return {
        "phase": "backward", "module": path, "source": f"train.py:{line}", "sequence": sequence,
        "stack": STACK.format(code=code),
    }  # fmt: skip


FIRST, TANH, SECOND = _linear("net.0", 18, 0), _linear("net.1", 19, 1), _linear("net.2", 20, 2)


def _values(shapes: Mapping[str, tuple[int, ...]], bindings: Mapping[str, str]) -> dict[str, Value]:
    return {name: Value(FLOAT, shape, bindings.get(name, "")) for name, shape in shapes.items()}


def sample_compile_forward() -> Graph:
    """The forward of compile mode before Inductor: two addmm and a tanh."""
    shapes = {
        "primals_1": (16, 4), "primals_2": (16,), "primals_3": (8, 4), "primals_4": (1, 16), "primals_5": (1,),
        "permute": (4, 16), "addmm": (8, 16), "tanh": (8, 16), "permute_1": (16, 1), "addmm_1": (8, 1),
    }  # fmt: skip
    bindings = {
        "primals_1": "parameter net.0.weight", "primals_2": "parameter net.0.bias", "primals_3": "input 0",
        "primals_4": "parameter net.2.weight", "primals_5": "parameter net.2.bias", "tanh": "saved tanh",
        "addmm_1": "output 0",
    }  # fmt: skip
    first, tanh, second = ({**one, "phase": "forward"} for one in (FIRST, TANH, SECOND))
    transposed = {"attributes": {"dims": [1, 0]}, "original": "aten.t"}
    return Graph(
        name="0-forward-pre",
        mode="compile",
        stage="pre",
        phase="forward",
        step=0,
        nodes=(
            node("permute", "permute", {"self": "primals_1"}, **transposed, **first),
            node("addmm", "addmm", {"self": "primals_2", "mat1": "primals_3", "mat2": "permute"}, **first),
            node("tanh", "tanh", {"self": "addmm"}, **tanh),
            node("permute", "permute_1", {"self": "primals_4"}, **transposed, **second),
            node("addmm", "addmm_1", {"self": "primals_5", "mat1": "tanh", "mat2": "permute_1"}, **second),
        ),
        values=_values(shapes, bindings),
        inputs=("primals_1", "primals_2", "primals_3", "primals_4", "primals_5"),
        outputs=("addmm_1", "primals_3", "primals_4", "tanh"),
        hash="f00d",
        seconds=1.25,
    )


BACKWARD_SHAPES: Mapping[str, tuple[int, ...]] = {
    "primals_3": (8, 4), "primals_4": (1, 16), "tanh": (8, 16), "tangents_1": (8, 1),
    "mm": (8, 16), "permute_2": (1, 8), "mm_1": (1, 16), "sum_1": (1, 1), "view": (1,),
    "mul": (8, 16), "sub": (8, 16), "mul_1": (8, 16), "permute_3": (16, 8), "mm_2": (16, 4),
    "sum_2": (1, 16), "view_1": (16,),
}  # fmt: skip

BACKWARD_BINDINGS = {
    "primals_3": "input 0", "primals_4": "parameter net.2.weight", "tanh": "saved tanh",
    "tangents_1": "gradient output 0", "mm_1": "gradient net.2.weight", "view": "gradient net.2.bias",
    "mm_2": "gradient net.0.weight", "view_1": "gradient net.0.bias",
}  # fmt: skip

GRADIENTS = ("mm_2", "view_1", "mm_1", "view")


def _sum(name: str, of: str, place: Mapping[str, Any]) -> Node:
    dims = {"dim": [0], "keepdim": True}
    return node("sum", name, {"self": of}, overload="dim_IntList", attributes=dims, **place)


def _permute(name: str, of: str, place: Mapping[str, Any]) -> Node:
    return node("permute", name, {"self": of}, attributes={"dims": [1, 0]}, original="aten.t", **place)


def _mm(name: str, a: str, b: str, place: Mapping[str, Any]) -> Node:
    return node("mm", name, {"self": a, "mat2": b}, **place)


def _view(name: str, of: str, size: int, place: Mapping[str, Any]) -> Node:
    return node("view", name, {"self": of}, attributes={"size": [size]}, **place)


def _decomposed_tanh_backward() -> tuple[Node, ...]:
    whole = {**TANH, "original": "aten.tanh_backward", "group": "tanh_backward_0", "overload": "Tensor"}
    return (
        node("mul", "mul", {"self": "tanh", "other": "tanh"}, **whole),
        node("sub", "sub", {"other": "mul"}, attributes={"self": 1}, **whole),
        node("mul", "mul_1", {"self": "mm", "other": "sub"}, **whole),
    )


def sample_compile_backward() -> tuple[Graph, Graph]:
    """The backward of compile mode: before Inductor, with tanh_backward as mul, sub, mul; and after it, with
    those three and a sum in one kernel."""
    pre = Graph(
        name="0-backward-pre",
        mode="compile",
        stage="pre",
        phase="backward",
        step=0,
        nodes=(
            _mm("mm", "tangents_1", "primals_4", SECOND),
            _permute("permute_2", "tangents_1", SECOND),
            _mm("mm_1", "permute_2", "tanh", SECOND),
            _sum("sum_1", "tangents_1", SECOND),
            _view("view", "sum_1", 1, SECOND),
            *_decomposed_tanh_backward(),
            _permute("permute_3", "mul_1", FIRST),
            _mm("mm_2", "permute_3", "primals_3", FIRST),
            _sum("sum_2", "mul_1", FIRST),
            _view("view_1", "sum_2", 16, FIRST),
        ),
        values=_values(BACKWARD_SHAPES, BACKWARD_BINDINGS),
        inputs=("primals_3", "primals_4", "tanh", "tangents_1"),
        outputs=GRADIENTS,
        hash="beef",
        seconds=2.5,
    )
    return pre, _post_of(pre)


def _post_of(pre: Graph) -> Graph:
    by_name = {one.name: one for one in pre.nodes}

    def extern(name: str, *covers: str) -> Node:
        return replace(by_name[name], overload="", covers=(*covers, name))

    def kernel(
        name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], covers: tuple[str, ...], code: str
    ) -> Node:
        return Node(
            name=name, op=name, domain="inductor", phase="backward", inputs=inputs, outputs=outputs,
            covers=covers, body=tuple(by_name[one] for one in covers), code=code,
            source=by_name[covers[0]].source, module=by_name[covers[0]].module,
        )  # fmt: skip

    fused = ("mul", "sub", "mul_1", "sum_2", "view_1")
    kept = (set(BACKWARD_SHAPES) - {"mul", "sub", "sum_1", "sum_2", "permute_2", "permute_3"}) | {"tanh"}
    return replace(
        pre,
        name="0-backward-post",
        stage="post",
        pre=pre.name,
        nodes=(
            extern("mm"),
            replace(extern("mm_1", "permute_2"), inputs=("tangents_1", "tanh")),
            kernel("cpp_fused_sum_view_0", ("tangents_1",), ("view",), ("sum_1", "view"), SUM_CODE),
            kernel(
                "cpp_fused_mul_sub_sum_tanh_backward_view_1",
                ("mm", "tanh"),
                ("mul_1", "view_1"),
                fused,
                TANH_BACKWARD_CODE,
            ),
            replace(extern("mm_2", "permute_3"), inputs=("mul_1", "primals_3")),
        ),
        values={
            name: value
            for name, value in _values(BACKWARD_SHAPES, BACKWARD_BINDINGS).items()
            if name in kept | {"mul", "sub", "sum_1", "sum_2"}
        },
        code=f"# the whole generated module\n{SUM_CODE}{TANH_BACKWARD_CODE}",
    )


def sample_lazy_backward() -> Graph:
    """The backward of lazy mode: tanh_backward is one op, and the graph ended at a mark_step."""
    shapes = {
        "p0": (8, 1), "p1": (1, 16), "p2": (8, 16), "p3": (8, 4),
        "mm": (8, 16), "t": (1, 8), "mm_1": (1, 16), "sum": (1, 1), "view": (1,), "tanh_backward": (8, 16),
        "t_1": (16, 8), "mm_2": (16, 4), "sum_1": (1, 16), "view_1": (16,),
    }  # fmt: skip
    bindings = {
        "p0": "gradient output 0", "p1": "parameter net.2.weight", "p2": "saved tanh", "p3": "input 0",
        "mm_1": "gradient net.2.weight", "view": "gradient net.2.bias", "mm_2": "gradient net.0.weight",
        "view_1": "gradient net.0.bias",
    }  # fmt: skip
    whole = {"grad_output": "mm", "output": "p2"}
    return Graph(
        name="0-backward-pre",
        mode="lazy",
        stage="pre",
        phase="backward",
        step=0,
        nodes=(
            _mm("mm", "p0", "p1", SECOND),
            node("t", "t", {"self": "p0"}, **SECOND),
            _mm("mm_1", "t", "p2", SECOND),
            _sum("sum", "p0", SECOND),
            _view("view", "sum", 1, SECOND),
            node("tanh_backward", "tanh_backward", whole, **TANH),
            node("t", "t_1", {"self": "tanh_backward"}, **FIRST),
            _mm("mm_2", "t_1", "p3", FIRST),
            _sum("sum_1", "tanh_backward", FIRST),
            _view("view_1", "sum_1", 16, FIRST),
        ),
        values=_values(shapes, bindings),
        inputs=("p0", "p1", "p2", "p3"),
        outputs=("mm_2", "view_1", "mm_1", "view"),
        hash="1a2b3c",
        cut=Cut("mark_step", source="train.py:33", stack='File "train.py", line 33, in <module>'),
    )


def write_run(
    tmp_path: Path,
    mode: str,
    graphs: Sequence[Graph],
    *,
    executions: Sequence[tuple[int, str, str, Cut | None]] | None = None,
    counters: Mapping[int, Mapping[str, int]] | None = None,
    unavailable: Mapping[str, str] | None = None,
    investigation: str = "mlp",
) -> Path:
    """Record graphs as a run would, into runs/<investigation>/<mode>_main, and give that folder.

    An execution is a step, a graph's name without its stage, a hash and what cut the graph; without any, each pre
    graph was executed once, in its step. `unavailable` are reasons by stage.
    """
    path = tmp_path / "runs" / investigation / f"{mode}_main"
    path.mkdir(parents=True)
    manifest(mode).write(path / "run.json")
    folder = GraphFolder(path / FOLDER, mode)
    for graph in graphs:
        folder.write(graph)
    if executions is None:
        pres = [graph for graph in graphs if graph.stage == "pre"]
        executions = [(one.step, one.name.removesuffix("-pre"), one.hash, one.cut) for one in pres]
    for step, name, hash_, cut in executions:
        folder.step = step
        folder.executed(name, hash_, cut)
    for step, values in (counters or {}).items():
        folder.step = step
        folder.counters(values)
    for stage, reason in (unavailable or {}).items():
        folder.unavailable(stage, reason)
    return path


def manifest(mode: str) -> RunManifest:
    return RunManifest(
        mode=mode, spec=mode, suffix="main", reproducer="train.py", script_sha256="0" * 64, arguments=[],
        record="none", started="2025-01-01T00:00:00+00:00", position=0, pickle=f"verify_{mode}_main.pkl",
        status="complete", steps=2, pid=os.getpid(),
    )  # fmt: skip
