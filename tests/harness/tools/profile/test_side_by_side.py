"""Tables of several modes beside each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.errors import JournalError
from numdrift.harness.records.tools.profile_record import (
    BlockRow,
    ExecutionRow,
    KernelRow,
    OpRow,
    PhaseRow,
    RunProfile,
    UntracedStep,
    read_profile,
)
from numdrift.harness.tools.profile.side_by_side import by_block, by_line, by_module, by_op, by_phase

CPU = RunProfile(
    mode="cpu",
    type="operator",
    asked="3-4",
    steps=[3, 4],
    partial=False,
    untraced=[UntracedStep(0, 0.5, None)],
    over="steps",
    bytes=100,
    step_milliseconds=[4.0, 6.0],
    own_milliseconds=1.0,
    phases=[PhaseRow("forward", 6.0, 0.6), PhaseRow("data", 4.0, 0.4)],
    blocks=[BlockRow("loss", 4, 2.0, 0.2)],
    ops=[
        OpRow("aten::addmm", "op", "forward", "fc", "train.py:9", 4, 5.0),
        OpRow("aten::mm", "op", "backward", "fc", "train.py:9", 2, 1.0),
    ],
    executions=[],
    kernels=[],
    notices=[],
)
LAZY = replace(
    CPU,
    mode="lazy",
    steps=[3],
    step_milliseconds=[10.0],
    phases=[PhaseRow("graph execution", 10.0, 1.0)],
    blocks=[],
    ops=[
        OpRow("aten::addmm", "dispatch", "forward", "fc", "", 2, 1.0),
        OpRow("aten::addmm", "execution", "graph execution", "", "", 2, 5.0),
    ],
    executions=[ExecutionRow("mark_step", "", 1, 10.0)],
)
COMPILED = replace(
    CPU,
    mode="compile",
    ops=[OpRow("cpp_fused_tanh_0", "kernel", "forward", "", "", 2, 3.0)],
    kernels=[KernelRow("cpp_fused_tanh_0", ["aten::tanh"], ["", "act"], ["train.py:4"])],
)


def test_a_cell_is_a_mean_over_the_steps_and_a_share_of_them() -> None:
    forward = next(row for row in by_phase([CPU, LAZY]) if row.name == "forward")
    cpu, lazy = forward.cells
    assert cpu is not None and (cpu.milliseconds, cpu.share) == (3.0, 0.6)
    assert lazy is None


def test_phases_come_in_the_order_of_a_step() -> None:
    assert [row.name for row in by_phase([LAZY, CPU])] == ["data", "forward", "graph execution"]


def test_a_dispatch_is_no_execution() -> None:
    rows = {row.name: row.cells for row in by_op([CPU, LAZY])}
    assert rows["aten::addmm (dispatch)"][0] is None
    cell = rows["aten::addmm"][1]
    assert cell is not None and cell.milliseconds == 5.0


def test_modules_have_their_backward_and_graphs_have_none() -> None:
    rows = {row.name: row.cells[0] for row in by_module([CPU])}
    assert rows["fc"] is not None and rows["fc"].milliseconds == 3.0
    assert "(graph execution)" in {row.name for row in by_module([LAZY])}


def test_a_kernel_belongs_to_what_it_was_made_of() -> None:
    assert [row.name for row in by_module([COMPILED])] == ["(root), act"]
    assert [row.name for row in by_line([COMPILED])] == ["train.py:4"]


def test_blocks_count_their_calls() -> None:
    (row,) = by_block([CPU])
    assert row.cells[0] is not None and row.cells[0].calls == 2


def test_there_is_no_table_of_lines_without_lines() -> None:
    assert not by_line([LAZY])
    assert by_line([CPU])


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    CPU.write(tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == CPU


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 9}', '{"schema": 1, "mode": "cpu"}'])
def test_a_profile_that_cannot_be_read_is_said_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(JournalError, match=r"profile\.json"):
        read_profile(tmp_path / "profile.json")
