"""Where the time of a step went, read from traces that are made by hand."""

from __future__ import annotations

from collections.abc import Mapping

from numdrift.harness.tools.profile.step_times import OpKey, StepTimes, step_times
from numdrift.harness.tools.profile.trace_slices import EXECUTED, nest, slices_of

from .events import WORKER, range_, slice_

EAGER = [
    range_("ProfilerStep#3", 0, 1000),
    range_("phase: data", 0, 100),
    range_("phase: forward", 100, 300),
    range_("module: fc", 110, 200),
    slice_("aten::linear", 120, 150, arguments={"Sequence number": 5, "Fwd thread id": 0, "Call line": "train.py:9"}),
    slice_("aten::addmm", 130, 100, arguments={"Sequence number": 5, "Fwd thread id": 0}),
    range_("phase: backward", 400, 300),
    slice_("autograd::engine::evaluate_function: AddmmBackward0", 410, 200,
           arguments={"Sequence number": 5, "Fwd thread id": 1}),
    slice_("aten::mm", 420, 50),
    range_("phase: numdrift", 700, 200),
    slice_("aten::item", 750, 10),
    range_("phase: optimizer", 900, 100),
]  # fmt: skip


def read(events: list[dict[str, object]], *, lazy: bool = False, blocks: Mapping[str, int] | None = None) -> StepTimes:
    return step_times(events, lazy=lazy, blocks=blocks or {})


def test_the_phases_share_the_step_among_them() -> None:
    times = read(EAGER)
    assert {name: spent.time for name, spent in times.phases.items()} == {
        "data": 100,
        "forward": 300,
        "backward": 300,
        "optimizer": 100,
    }
    assert times.walls == [800]
    assert times.own == 200


def test_a_moment_between_two_phases_is_of_the_one_before() -> None:
    times = read([range_("ProfilerStep#1", 0, 100), range_("phase: data", 5, 45), range_("phase: forward", 60, 40)])
    assert {name: spent.time for name, spent in times.phases.items()} == {"data": 60, "forward": 40}


EVALUATED = [
    range_("ProfilerStep#3", 0, 1000),
    range_("phase: data", 0, 100),
    range_("phase: no gradients", 100, 300),
    slice_("aten::addmm", 130, 100),
]


def phases(times: StepTimes) -> dict[str, float]:
    return {name: spent.time for name, spent in times.phases.items()}


def test_an_evaluation_before_the_forward_is_no_forward() -> None:
    times = read([*EVALUATED, range_("phase: forward", 400, 200), range_("phase: backward", 600, 400)])
    assert phases(times) == {"data": 400, "forward": 200, "backward": 400}
    assert [key.phase for key in times.ops if key.op == "aten::addmm"] == ["data"]


def test_a_step_that_only_evaluates_has_its_forward() -> None:
    times = read([*EVALUATED, range_("phase: optimizer", 400, 600)])
    assert phases(times) == {"data": 100, "forward": 300, "optimizer": 600}
    assert [key.phase for key in times.ops if key.op == "aten::addmm"] == ["forward"]


def test_an_op_has_its_own_time_its_module_and_its_line() -> None:
    ops = read(EAGER).ops
    assert ops[OpKey("aten::linear", "op", "forward", "fc", "train.py:9")].time == 50
    assert ops[OpKey("aten::addmm", "op", "forward", "fc", "train.py:9")].time == 100
    assert not any(key.op == "aten::item" for key in ops), "what the recording does is not an op of the script's"


def test_a_backward_is_of_the_module_whose_forward_it_undoes() -> None:
    assert OpKey("aten::mm", "op", "backward", "fc", "train.py:9") in read(EAGER).ops


LAZY = [
    range_("ProfilerStep#3", 0, 900),
    range_("phase: forward", 0, 400),
    slice_("aten::addmm", 10, 50, arguments={"Call line": "train.py:9"}),
    slice_("aten::mse_loss", 100, 200, arguments={"Call line": "train.py:10"}),
    slice_("", 150, 100),
    slice_("aten::addmm", 160, 80),
    range_("phase: numdrift", 400, 500),
    range_("mark_step", 420, 400),
    slice_("", 500, 300),
    slice_("aten::addmm", 510, 100),
]


def test_a_lazy_graph_is_executed_apart_from_its_dispatch() -> None:
    times = read(LAZY, lazy=True)
    assert {name: spent.time for name, spent in times.phases.items() if spent.time} == {
        "forward": 300,
        "graph execution": 400,
        "mark_step": 100,
    }
    addmm = [(key.kind, key.line, spent.time) for key, spent in times.ops.items() if key.op == "aten::addmm"]
    assert addmm == [
        ("dispatch", "train.py:9", 50),
        ("execution", "train.py:10", 80),
        ("execution", "", 100),
    ]
    assert times.own == 100, "only what is left of the recording's own phase"


def test_what_made_a_graph_be_executed_is_named() -> None:
    executions = read(LAZY, lazy=True).executions
    assert {cause: spent.time for cause, spent in executions.items()} == {
        ("mark_step", ""): 300,
        ("aten::mse_loss", "train.py:10"): 100,
    }


def test_a_compiler_and_its_kernels_are_told_apart() -> None:
    times = read(
        [
            range_("ProfilerStep#0", 0, 1000),
            range_("phase: forward", 0, 1000),
            slice_("_compile.compile_inner (dynamo_timed)", 100, 600),
            slice_("aten::empty", 200, 10),
            range_("cpp_fused_addmm_tanh_0", 800, 50),
        ]
    )
    assert times.phases["compile"].time == 600
    assert times.phases["forward"].time == 400
    assert OpKey("cpp_fused_addmm_tanh_0", "kernel", "forward", "", "") in times.ops
    assert OpKey("aten::empty", "compile", "compile", "", "") in times.ops


def test_a_block_has_all_that_is_within_it_and_one_of_a_phases_name_is_that_phase() -> None:
    events = [
        range_("ProfilerStep#1", 0, 100),
        range_("phase: data", 0, 100),
        range_("loss", 10, 30),
        range_("backward", 50, 40),
    ]
    times = read(events, blocks={"loss": 2, "backward": 1})
    assert times.blocks["loss"].time == 30
    assert times.blocks["loss"].calls == 2, "a block that is split at a phase is not counted by its parts"
    assert times.phases["backward"].time == 40
    assert times.phases["data"].time == 60


def test_what_the_recording_does_in_a_block_is_no_time_of_it() -> None:
    times = read(
        [
            range_("ProfilerStep#1", 0, 100),
            range_("update", 0, 100),
            range_("phase: optimizer", 0, 30),
            range_("phase: numdrift", 30, 70),
        ],
        blocks={"update": 1},
    )
    assert times.blocks["update"].time == 30
    assert times.walls == [30]


def test_an_op_on_another_thread_is_of_the_phase_that_the_script_is_in() -> None:
    events = [
        range_("ProfilerStep#1", 0, 100),
        range_("phase: forward", 0, 40),
        range_("phase: backward", 40, 60),
        slice_("aten::mm", 50, 10, thread=WORKER),
    ]
    times = read(events)
    assert OpKey("aten::mm", "op", "backward", "", "") in times.ops
    assert times.phases["backward"].time == 60, "phases are those of the script's thread"


def test_a_trace_without_a_step_has_no_times() -> None:
    assert not read([slice_("aten::mm", 0, 1)]).walls


def test_a_slice_that_ends_late_is_cut_at_the_one_around_it() -> None:
    outer, inner = nest(slices_of([slice_("a", 0, 10), slice_("b", 5, 10)], EXECUTED))[(7, 7)][0], None
    inner = outer.children[0]
    assert (inner.end, outer.self_time) == (10, 5)
