"""What is executed again where lazy graphs are cut: told from the graphs of the step, and what helps against it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numdrift.harness.graphs.run_graphs import RunGraphs
from numdrift.harness.investigate.questions.mark_steps import drawn_again
from numdrift.harness.investigate.questions.question import mode_culprit
from numdrift.harness.investigate.questions.whole_trainings import remedy
from numdrift.harness.investigate.words.culprit_words import lines_of
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.culprit import MARK_STEP, Culprit
from numdrift.harness.records.tools.graph_record import Graph, Node
from numdrift.harness.runs.recorded_run import load_run
from numdrift.harness.tape.op_names import DRAWING, draws

from ..graphs.samples import node, write_run


def drop(name: str, module: str, sequence: int | None) -> Node:
    return node("native_dropout", name, module=module, sequence=sequence, source="train.py:4")


def graph(name: str, *nodes: Node) -> Graph:
    return Graph(name=f"{name}-pre", mode="lazy", stage="pre", phase="forward", step=0, nodes=nodes, hash=name)


def test_a_dropout_in_two_graphs_of_a_step_is_drawn_again(tmp_path: Path) -> None:
    first, second = drop("a", "1", 7), drop("b", "3", 9)
    path = write_run(
        tmp_path,
        "lazy",
        [
            graph("0-forward", first, node("mm", "c", module="2", sequence=8)),
            # the mask of `1` once more, with what reads it; that of `3` is drawn here, and so is one that has no number
            graph("0-forward-2", first, second, drop("d", "4", None)),
            graph("0-forward-3", first, drop("d", "4", None), drop("e", "3", 12)),
        ],
    )
    found = drawn_again(RunGraphs(load_run(path)))
    assert [(one[0].module, len(one)) for one in found] == [("1", 3)]


def test_what_draws_is_what_torch_says() -> None:
    def is_random(name: str) -> bool:
        packet = getattr(torch.ops.aten, name)
        return any(torch.Tag.nondeterministic_seeded in getattr(packet, one).tags for one in packet.overloads())

    assert all(map(is_random, DRAWING))
    assert draws("bernoulli_") and not draws("native_dropout_backward") and not draws("mse_loss")


def culprit(best: str, swapped: str | None) -> Culprit:
    return mode_culprit(
        kind=MARK_STEP,
        step=0,
        name="aten.mse_loss falls back to the CPU",
        before=1.3e6,
        after=0.45,
        threshold=16.0,
        why="",
        op="aten.native_dropout",
        policy={"cpu": None, "lazy": "auto", "swapped": best},
        swapped=swapped,
    )


@pytest.mark.parametrize(
    ("best", "swapped", "said", "mode"),
    [
        ("phase", "mark_step=phase", "0.45 with mark_step=phase", "lazy,mark_step=phase"),
        ("execute=op", "execute=op", "0.45 with each op executed by itself (execute=op)", "lazy,execute=op"),
        ("each op executed by itself on the CPU", None, "0.45 with each op executed by itself on the CPU", "lazy"),
    ],
)
def test_what_helps_is_a_mode_to_run(best: str, swapped: str | None, said: str, mode: str) -> None:
    one = culprit(best, swapped)
    against = "compared with the same ops executed one by one: z 1.3e+06 with mark_step=auto"
    assert f"{against}, {said}" in lines_of(one, "cpu", "lazy")
    assert str(remedy(parse_mode("cpu"), parse_mode("lazy"), [one]).spec) == mode
