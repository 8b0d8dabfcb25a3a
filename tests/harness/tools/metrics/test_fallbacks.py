"""Each kernel that a graph of Inductor's takes from torch is told with the line of its node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from numdrift.harness.backends.compiled.graph_lines import GraphLines
from numdrift.harness.torch_private.compiler.inductor_lowering import LoweredNode
from numdrift.harness.torch_private.profiling.compile_work import kernels_of_torch

SCRIPT = "/a/train.py"
ATEN = torch.ops.aten

GENERATED = """
aten = torch.ops.aten
async_compile.cpp('''
    at::scatter_reduce_(x);
''')
def call(args):
        # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.convolution_backward]
        extern_kernels.mm(buf0, buf1, out=buf2)
        aten.scatter_reduce_.two(buf3,1,buf4,buf5, reduce='sum', include_self=True)
        buf6 = torch.ops.aten.convolution_backward.default(buf3, primals_9)
        assert_size_stride(buf7, (16, ), (1, ), 'torch.ops.aten.convolution_backward.default')
        aten.scatter_reduce_.two(buf8,1,buf9,buf10, reduce='sum', include_self=True)
        buf11 = torch.ops.aten.convolution_backward.default(buf8, primals_3)
        aten.index_put_(buf12, [buf13], buf14, True)
        buf15 = torch.ops.inductor._alloc_from_pool(pool, 0)
"""


def graph_of(*calls: tuple[Any, int, torch.dtype]) -> torch.fx.Graph:
    """A graph of these ops, each with its line of the script and the dtype of its result."""
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    for target, line, dtype in calls:
        node = graph.call_function(target, (given,))
        node.meta["stack_trace"] = f'  File "{SCRIPT}", line {line}, in forward\n    x'
        node.meta["val"] = torch.empty(2, dtype=dtype)
    return graph


def called(lines: GraphLines, *kernels: str) -> list[tuple[str, str]]:
    return sorted(lines.called(kernels))


def test_every_call_of_a_kernel_counts() -> None:
    assert kernels_of_torch(SimpleNamespace(source_code=GENERATED)) == [
        "aten::scatter_reduce_.two", "aten::convolution_backward",
        "aten::scatter_reduce_.two", "aten::convolution_backward",
        "aten::index_put_",
    ]  # fmt: skip


def test_each_kernel_of_an_op_has_the_line_of_its_own_node() -> None:
    float32 = torch.float32
    lines = GraphLines.of(
        graph_of(
            (ATEN.convolution_backward.default, 21, float32),
            (ATEN.scatter_add.default, 21, float32),
            (ATEN.slice_scatter.default, 22, float32),
            (ATEN.convolution_backward.default, 20, float32),
            (ATEN.scatter_add.default, 20, float32),
        ),
        SCRIPT,
    )
    kernels = kernels_of_torch(SimpleNamespace(source_code=GENERATED))
    assert called(lines, *kernels) == [
        ("aten::convolution_backward", "train.py:20"),
        ("aten::convolution_backward", "train.py:21"),
        ("aten::index_put_", ""),
        ("aten::scatter_reduce_.two", "train.py:20"),
        ("aten::scatter_reduce_.two", "train.py:21"),
    ]


COMPLEX = (
    (ATEN.mul.Tensor, 30, torch.complex64),
    (ATEN.mul.Scalar, 31, torch.complex64),
    (ATEN.mul.Tensor, 14, torch.float32),
)


def test_a_node_that_inductor_generates_code_for_gives_no_line() -> None:
    # given complex multiplications, and later one of floats, in a graph that was not lowered here
    lines = GraphLines.of(graph_of(*COMPLEX), SCRIPT)
    # then it is the complex ones that fall back
    assert called(lines, "aten::mul.Tensor", "aten::mul.Scalar") == [
        ("aten::mul.Scalar", "train.py:31"), ("aten::mul.Tensor", "train.py:30"),
    ]  # fmt: skip
    # and where it is open which of them, no line is named
    lines = GraphLines.of(graph_of(*COMPLEX, (ATEN.mul.Tensor, 32, torch.complex64)), SCRIPT)
    assert called(lines, "aten::mul.Tensor") == [("aten::mul.Tensor", "")]


def test_the_node_that_inductor_was_seen_to_lower_to_a_kernel_gives_its_line() -> None:
    graph = graph_of((ATEN.sort.stable, 8, torch.float32), (ATEN.sort.stable, 9, torch.float32))
    lines = GraphLines.of(graph, SCRIPT)
    node = list(graph.nodes)[1]
    lines.seen(LoweredNode(node, "FallbackKernel", "aten.sort.stable", "too large"), SCRIPT)
    assert called(lines, "aten::sort.stable") == [("aten::sort.stable", "train.py:8")]
