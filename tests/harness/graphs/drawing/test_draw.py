from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from numdrift.harness.graphs.culprit_marks import Mark
from numdrift.harness.graphs.drawing.draw import CULPRIT, TIMES, WHOLE, draw, picture_of
from numdrift.harness.records.tools.graph_record import Graph, Node, Value

from ..samples import sample_compile_backward, sample_compile_forward, sample_lazy_backward

KERNEL = "cpp_fused_mul_sub_sum_tanh_backward_view_1"
MARK = Mark("aten.tanh_backward", {"max_ulp": 724.2})


def texts(graph: Graph, folder: Path, marks: Mapping[str, Mark] | None = None) -> list[str]:
    """What is written in the SVG of a graph."""
    path = folder / "graph.svg"
    draw(graph, marks or {}, path, "svg")
    return [one.text or "" for one in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def reds(graph: Graph, marks: Mapping[str, Mark], folder: Path) -> int:
    """The pixels of the culprit's colour in the PNG of a graph."""
    path = folder / "graph.png"
    draw(graph, marks, path, "png")
    close = np.abs(imread(path)[:, :, :3] - np.array(to_rgb(CULPRIT))).max(axis=2) < 0.02
    return int(close.sum())


def test_a_box_says_op_shape_module_and_line(tmp_path: Path) -> None:
    written = texts(sample_compile_backward()[0], tmp_path)
    assert {"sub", "from aten.tanh_backward", f"8{TIMES}16 float32", "net.1 · train.py:19"} <= set(written)
    assert {"primals_4", "parameter net.2.weight", "gradient net.0.weight"} <= set(written)
    assert written.count("mul") == 2
    assert "compile · backward · step 0 · before its compiler" in written


def test_a_kernel_lists_the_ops_in_it(tmp_path: Path) -> None:
    written = texts(sample_compile_backward()[1], tmp_path)
    assert "mul · sub · mul · sum · view" in written
    assert "cpp_fused_sum_view_0" in written


def test_a_culprit_is_red_and_says_by_how_much(tmp_path: Path) -> None:
    _, post = sample_compile_backward()
    assert "⚠ aten.tanh_backward: 724.2 ULP" in texts(post, tmp_path, {KERNEL: MARK})
    assert reds(post, {}, tmp_path) == 0
    assert reds(post, {KERNEL: MARK}, tmp_path) > 1000


def test_lines_join_what_makes_a_value_to_what_takes_it() -> None:
    graph = sample_lazy_backward()
    picture = picture_of(graph, {})
    number = {node.name: f"node {at}" for at, node in enumerate(graph.nodes)}
    expected = {("input p0", number["mm"]), (number["mm"], number["tanh_backward"])}
    expected |= {(number["tanh_backward"], number["t_1"]), (number["view_1"], "output view_1")}
    assert expected <= set(picture.lines)
    assert len(picture.lines) == sum(len(set(node.inputs)) for node in graph.nodes) + len(graph.outputs)


def test_an_output_that_nobody_makes_and_an_input_that_nobody_takes_are_left_out() -> None:
    picture = picture_of(replace(sample_compile_forward(), inputs=("primals_1", "idle")), {})
    assert not [name for name in picture.boxes if "idle" in name or name == "output primals_3"]


def test_plain_numbers_of_the_program_have_no_box() -> None:
    taken = Node("a", "addmm", inputs=("x", "alpha"), outputs=("a",))
    values = {"x": Value("float32", (2,), "constant"), "alpha": Value("int64", (), "constant")}
    picture = picture_of(Graph("g", "lazy", "pre", "forward", 0, (taken,), values, ("x", "alpha"), ()), {})
    assert list(picture.boxes) == ["node 0", "input x"]


def test_a_large_graph_is_drawn_around_its_culprits_and_says_so(tmp_path: Path) -> None:
    count = WHOLE + 50
    nodes = [Node(f"n{at}", f"op{at}", inputs=(f"n{at - 1}",), outputs=(f"n{at}",)) for at in range(count)]
    graph = Graph("g", "cpu", "stream", "forward", 0, tuple(nodes), {"n0": Value("float32", ())}, (), ())
    path = tmp_path / "graph.svg"
    left_out = draw(graph, {"n200": MARK}, path, "svg")
    assert left_out == f"100 of {count} nodes, around the culprits"
    text = path.read_text(encoding="utf-8")
    assert ">op200<" in text and ">op20<" not in text
    assert left_out in text
    assert draw(graph, {}, path, "svg") == f"100 of {count} nodes, from the start"


def test_equal_graphs_give_equal_files(tmp_path: Path) -> None:
    for kind in ("png", "svg"):
        for name in ("a", "b"):
            draw(sample_compile_forward(), {}, tmp_path / name, kind)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_an_empty_graph_and_odd_texts_are_drawn(tmp_path: Path, kind: str) -> None:
    empty = Graph("g", "cpu", "pre", "", 0, ())
    draw(empty, {}, tmp_path / "empty", kind)
    odd = Node("$x_{1}$<b>&\n\x00", "$\\frac{", "<script>", outputs=("$",), module="a" * 300, source="\\$:1")
    draw(replace(empty, nodes=(odd,), outputs=("$",)), {odd.name: MARK}, tmp_path / "odd", kind)
    assert (tmp_path / "odd").stat().st_size > (tmp_path / "empty").stat().st_size
    if kind == "svg":
        assert ElementTree.parse(tmp_path / "odd") is not None
