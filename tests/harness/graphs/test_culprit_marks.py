from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import JournalError
from numdrift.harness.graphs.culprit_marks import Mark, marks_for
from numdrift.harness.records.tools.graph_record import Graph
from numdrift.harness.runs.recorded_run import load_run

from .investigations import CULPRIT, investigation, write_investigation
from .samples import sample_compile_backward, sample_compile_forward, sample_lazy_backward, write_run

KERNEL = "cpp_fused_mul_sub_sum_tanh_backward_view_1"


def marks(tmp_path: Path, mode: str, graph: Graph, found: object, pre: Graph | None = None) -> dict[str, Mark]:
    """The marks of a graph of a run whose investigation found this."""
    graphs = [graph] if graph.stage == "pre" else list(sample_compile_backward())
    run = write_run(tmp_path, mode, graphs)
    if found is not None:
        write_investigation(run, found)
    return marks_for(load_run(run), graph, pre)


def test_without_an_investigation_there_are_no_marks(tmp_path: Path) -> None:
    assert marks(tmp_path, "lazy", sample_lazy_backward(), None) == {}


def test_an_op_that_is_whole_is_marked_with_the_numbers_of_its_side(tmp_path: Path) -> None:
    found = marks(tmp_path, "lazy", sample_lazy_backward(), investigation(CULPRIT))
    assert list(found) == ["tanh_backward"]
    mark = found["tanh_backward"]
    assert mark.label == "aten.tanh_backward"
    assert mark.numbers == {"max_ulp": 0.94, "rho": 0.4, "share": 0.97}
    assert mark.reason == (
        "aten.tanh_backward drifts from compile at step 0 (kernel aten, in compile decomposed); "
        "largest error: 0.94 ULP in lazy, 724.2 ULP in compile"
    )


def test_the_ops_that_it_was_decomposed_to_are_marked(tmp_path: Path) -> None:
    pre, _ = sample_compile_backward()
    found = marks(tmp_path, "compile", pre, investigation(CULPRIT))
    assert set(found) == {"mul", "sub", "mul_1"}
    assert found["sub"].numbers["max_ulp"] == 724.2


@pytest.mark.parametrize("given", [True, False], ids=["pre graph given", "pre graph read from the run"])
def test_the_kernel_that_covers_them_is_marked_and_the_ops_in_it(tmp_path: Path, given: bool) -> None:
    pre, post = sample_compile_backward()
    found = marks(tmp_path, "compile", post, investigation(CULPRIT), pre if given else None)
    assert set(found) == {KERNEL, "mul", "sub", "mul_1"}


def test_a_kernel_whose_ops_are_not_known_is_marked_by_what_it_covers(tmp_path: Path) -> None:
    _, post = sample_compile_backward()
    closed = replace(post, nodes=tuple(replace(node, body=()) for node in post.nodes))
    assert set(marks(tmp_path, "compile", closed, investigation(CULPRIT))) == {KERNEL}


@pytest.mark.parametrize(
    "other", [{"phase": "forward"}, {"module": "net.3"}, {"op": "aten.tanh"}, {"op": None}, {"op": ""}]
)
def test_another_phase_module_or_op_marks_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    pre, _ = sample_compile_backward()
    assert marks(tmp_path, "compile", pre, investigation({**CULPRIT, **other})) == {}


def test_every_place_and_phase_of_a_culprit_is_marked(tmp_path: Path) -> None:
    pre, _ = sample_compile_backward()
    elsewhere = {**CULPRIT, "module": "net.3", "places": ["net.3", "net.1"]}
    assert set(marks(tmp_path / "1", "compile", pre, investigation(elsewhere))) == {"mul", "sub", "mul_1"}
    both = {**CULPRIT, "phase": "forward", "phases": ["forward", "backward"]}
    assert set(marks(tmp_path / "2", "compile", pre, investigation(both))) == {"mul", "sub", "mul_1"}


def test_a_module_that_is_not_known_leaves_it_to_the_line(tmp_path: Path) -> None:
    lazy = sample_lazy_backward()
    mm = {**CULPRIT, "op": "aten.mm", "module": None, "source": "/somewhere/train.py:18"}
    assert set(marks(tmp_path, "lazy", lazy, investigation(mm))) == {"mm_2"}


def test_the_forward_and_pairs_of_other_modes_stay_as_they_are(tmp_path: Path) -> None:
    assert marks(tmp_path / "1", "compile", sample_compile_forward(), investigation(CULPRIT)) == {}
    pre, _ = sample_compile_backward()
    assert marks(tmp_path / "2", "compile", pre, investigation(CULPRIT, a="cpu", b="lazy")) == {}


def test_an_investigation_without_pairs_or_culprits_marks_nothing(tmp_path: Path) -> None:
    assert marks(tmp_path / "1", "lazy", sample_lazy_backward(), {"schema": 1, "pairs": []}) == {}
    assert marks(tmp_path / "2", "lazy", sample_lazy_backward(), investigation()) == {}


@pytest.mark.parametrize(
    "malformed",
    [
        "{", "[]", "3", "null", {}, {"schema": 2, "pairs": []}, {"schema": 1}, {"schema": 1, "pairs": 3},
        {"schema": 1, "pairs": ["x"]}, {"schema": 1, "pairs": [{"a": "lazy", "b": "cpu"}]},
        investigation({**CULPRIT, "op": 3}), investigation({**CULPRIT, "module": ["net"]}),
        investigation({**CULPRIT, "error_ulp": {"a": "much"}}), investigation({**CULPRIT, "error_ulp": [1]}),
        investigation({**CULPRIT, "step": {}}), investigation(["x"]), "[" * 100_000,  # type: ignore[arg-type]
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_malformed_investigation_is_named(tmp_path: Path, malformed: object) -> None:
    with pytest.raises(JournalError, match=r"investigation\.json"):
        marks(tmp_path, "lazy", sample_lazy_backward(), malformed)
