"""The kinds of a training's steps, and which of them were compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Argument, Step, record

from numdrift.harness.investigate.evidence.schedule_phases import group_phases, schedule_phases
from numdrift.harness.investigate.evidence.step_kinds import KindOfSteps, compared_kinds, one_of_each, step_kinds
from numdrift.harness.investigate.experiments.chosen_steps import forced_steps, within_control
from numdrift.harness.investigate.experiments.further_kinds import steps_of_further_kinds
from numdrift.harness.investigate.words.kind_words import kinds_compared, kinds_left
from numdrift.harness.records import frames
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import FAULT, Outcome, Study, compared_study, only_pair, resynced, training


def argument(rows: int) -> Argument:
    return ("float32", (rows, 3), "aa")


def optimizer(*groups: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"class": "SGD", "groups": [{"params": ["w"], **group} for group in groups]}]


def rates(*values: float) -> list[tuple[int, list[dict[str, Any]]]]:
    """The changes of a learning rate that has these values in the steps from 0 on."""
    changed = [step for step in range(len(values)) if not step or values[step] != values[step - 1]]
    return [(step, optimizer({"lr": values[step]})) for step in changed]


def run_of(folder: Path, steps: Sequence[Step], compiled: Sequence[int] = (), **more: Any) -> RecordedRun:
    """A run that kept the state of each step, and compiled a graph in some of them."""
    run = record(folder, steps, **more)
    events = run.path / "journal" / frames.EVENTS
    lines = []
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "step" and event["step"] in compiled:
            lines += [json.dumps({"event": "compiling", "backward": False, "line": ""}), '{"event": "compiled"}']
        lines.append(line)
    events.write_text("".join(f"{line}\n" for line in lines))
    (folder / "states").mkdir()
    for step in range(len(steps) + 1):
        (folder / "states" / f"state-{step:06d}.safetensors").touch()
    return RecordedRun(run.path, run.manifest)


def pair_of(folder: Path, steps: Sequence[Step], compiled: Sequence[int] = (), **more: Any) -> tuple[RecordedRun, ...]:
    return run_of(folder / "a", steps, **more), run_of(folder / "b", steps, compiled, **more)


def found(runs: Sequence[RecordedRun]) -> dict[str, dict[str, tuple[int, ...]]]:
    kinds: dict[str, dict[str, tuple[int, ...]]] = {}
    for kind in step_kinds(runs[0], runs[1]):
        kinds.setdefault(kind.aspect, {})[kind.text] = kind.steps
    return kinds


def test_steps_that_are_all_alike_have_no_kinds(tmp_path: Path) -> None:
    assert found(pair_of(tmp_path, [Step()] * 6, compiled=[0], hyper=rates(0.1))) == {}


@pytest.mark.parametrize(
    ("steps", "aspect", "expected"),
    [
        ([Step(batches=[[argument(8 if step < 3 else 5)]]) for step in range(4)], "batch", [(3,), (0, 1, 2)]),
        ([Step(optimizer=step % 2) for step in range(4)], "optimizer", [(0, 2), (1, 3)]),
        # an evaluation before step 3
        ([Step(batches=[[argument(8)]] * (3 if step == 3 else 1)) for step in range(5)], "calls", [(3,), (0, 1, 2, 4)]),
        # a play of a different length before each step
        ([Step(batches=[[argument(8)]] * count) for count in (1, 2, 3, 5, 6, 7, 9)], "calls", None),
        # a parameter is unfrozen
        (
            [
                Step(values={"v": [1.0], "w": [1.0]}, gradients={"w": [1.0]} | ({"v": [1.0]} if step > 1 else {}))
                for step in range(4)
            ],
            "gradients",
            [(0, 1), (2, 3)],
        ),
        # the runs are far apart in step 9
        ([Step()] * 12, "jump", None),
    ],
)
def test_kinds_of_steps(
    tmp_path: Path, steps: Sequence[Step], aspect: str, expected: Sequence[tuple[int, ...]] | None
) -> None:
    runs = pair_of(tmp_path, steps)
    if aspect == "jump":
        apart = [Step(gradients={"w": [0.1 * (1.01 if step >= 9 else 1 + 1e-6), 0.2]}) for step in range(12)]
        runs = runs[0], run_of(tmp_path / "c", apart)
        expected = [(9,)]
    elif expected is None:
        expected = [(0,), (1, 2), (3, 4, 5), (6,)]
    assert {*found(runs)} == {aspect}
    assert sorted(found(runs)[aspect].values()) == sorted(expected)


def test_a_graph_is_that_of_the_steps_with_the_shapes_for_which_it_was_compiled(tmp_path: Path) -> None:
    # given a graph for batches of 8, one for batches of 5 from step 3 on, and one more for batches of 8 in step 6
    shapes = [8, 8, 8, 5, 8, 5, 8, 5, 8]
    runs = pair_of(tmp_path, [Step(batches=[[argument(rows)]]) for rows in shapes], compiled=[0, 3, 6])
    assert {*found(runs)["graph"].values()} == {(3, 5, 7), (6, 8)}
    assert all("b compiles" in text for text in found(runs)["graph"])
    # a compilation that only looks inside a graph makes no kind
    again = json.dumps({"event": "compiling", "backward": False, "line": "", "again": 1})
    events = runs[0].path / "journal" / frames.EVENTS
    events.write_text(f"{again}\n{events.read_text()}")
    assert RecordedRun(runs[0].path, runs[0].manifest).journal.compiled_steps() == []


RISES, FALLS = "while lr rises", "while lr falls"


@pytest.mark.parametrize(
    ("values", "phases"),
    [
        # a warm-up, a plateau and a decay to another plateau
        (
            [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.3, 0.2, 0.2],
            ["at lr 0.1", RISES, RISES, RISES, "at lr 0.4", "at lr 0.4", FALLS, FALLS, "at lr 0.2"],
        ),
        # a single step down
        ([0.1, 0.1, 0.01, 0.01], ["at lr 0.1", "at lr 0.1", "at lr 0.01", "at lr 0.01"]),
        # a step down every second step is one decay
        ([8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0], ["at lr 8"] * 2 + [FALLS] * 5 + ["at lr 1"]),
        ([0.1] * 4, [""] * 4),
    ],
)
def test_the_phases_of_a_schedule(values: Sequence[float], phases: Sequence[str]) -> None:
    assert list(schedule_phases(rates(*values), range(len(values))).values()) == phases


def test_a_restarting_schedule_has_few_phases() -> None:
    values = [4.0, 3.0, 2.0, 1.0] * 5
    assert {*schedule_phases(rates(*values), range(20)).values()} == {FALLS, "at lr 4"}
    # different values between single changes are one kind, if they are many
    jumping = [step % 7 * 1.5 + step for step in range(40)]
    alternating = [value for value in jumping for _ in range(3)]
    assert len({*schedule_phases(rates(*alternating), range(120)).values()}) <= 7


def test_each_optimizer_and_each_hyper_parameter_has_phases_of_its_own() -> None:
    changes = [
        (step, optimizer({"lr": 0.1 - step / 100, "betas": [0.9, 0.99 if step < 3 else 0.95]})) for step in range(5)
    ]
    assert list(schedule_phases(changes, range(5)).values()) == [
        "at lr 0.1; at betas.1 0.99", *[f"{FALLS}; at betas.1 0.99"] * 2, *[f"{FALLS}; at betas.1 0.95"] * 2
    ]  # fmt: skip
    groups = [(0, optimizer({"lr": 0.1})), (2, optimizer({"lr": 0.1}, {"lr": 0.1, "params": ["v", "u"]}))]
    assert [text.partition(" (")[0] for text in group_phases(groups, range(3)).values()] == [
        "with 1 parameters in 1 groups", "with 1 parameters in 1 groups", "with 3 parameters in 2 groups"
    ]  # fmt: skip


def kind(*steps: int, aspect: str = "batch") -> KindOfSteps:
    return KindOfSteps(aspect, f"kind {steps[0]}", steps)


def test_a_step_of_each_kind_is_chosen_away_from_the_others_if_it_can_be() -> None:
    assert one_of_each([kind(5), kind(1, 3, 7), kind(0, 2, 4, 6)], range(8), {0}, 8) == (5, 3)
    # a kind whose only step is a neighbour
    assert one_of_each([kind(1), kind(0, 2, 3, 4)], range(5), {0}, 8) == (2, 1)
    assert one_of_each([kind(1), kind(0, 2, 3, 4)], range(5), {0, 1}, 8) == (3,)
    assert one_of_each([kind(step) for step in range(30)], range(30), {0}, 8) == (2, 4, 6, 8, 10, 12, 14, 16)
    assert one_of_each([kind(5), kind(3)], [3], (), 8) == (3,)


def test_a_rare_kind_is_begun_in_the_references_state(tmp_path: Path) -> None:
    # given a short batch in one odd step only, where every second step from 0 on would be chosen
    steps = [Step(batches=[[argument(5 if step == 7 else 8)]], gradients={"w": [1.0]}) for step in range(14)]
    a = run_of(tmp_path / "a", steps)
    b = run_of(tmp_path / "b", [Step(batches=step.batches, gradients={"w": [1.5]}) for step in steps])
    assert 7 in within_control(a, b, 0, None, 64) and 7 in within_control(a, b, 0, None, 3)
    # and where the steps are begun in a run of their own
    assert forced_steps(1000, [0], 1 << 20, 5 << 20, of_kinds=[333]) == (0, 1, 250, 333, 999)


def test_what_was_compared_of_each_kind() -> None:
    kinds = [kind(3), kind(1, 5, 9), kind(0, 2, 4)]
    assert [found.compared for found in compared_kinds(kinds, {5, 9}, None)] == [0, 2, 0]
    # before the first difference, both have computed the same bits
    assert [found.compared for found in compared_kinds(kinds, {5}, 3)] == [0, 2, 2]


def test_an_answer_names_the_kinds_that_were_not_compared() -> None:
    kinds = compared_kinds([kind(3), kind(1, 5, 9), kind(0, 2, 4)], {1, 5}, 1)
    assert kinds_compared(kinds) == "steps of 2 of 3 kinds were compared (3 steps kind 1; 3 steps kind 0)"
    assert kinds_left(kinds) == (
        "nothing is known of the kinds that were not compared (1 step kind 3): compare them with --steps 3"
    )
    everything = compared_kinds([kind(3), kind(1, 5, 9)], {1, 3}, None)
    assert kinds_compared(everything).startswith("steps of all 2 kinds were compared") and not kinds_left(everything)
    assert kinds_compared(()) == kinds_left(()) == ""
    many = compared_kinds([kind(step) for step in range(6)], {}, None)
    assert kinds_left(many).endswith("1 step kind 2; and 3 more): compare them with --steps 0,1,2")


RAGGED = {3: [[argument(5)]]}


def ragged_study(
    folder: Path, scores: Mapping[int, float], *, ragged: bool = True
) -> tuple[Study, Sequence[RecordedRun]]:
    shapes = RAGGED if ragged else {}
    free = [Step(losses=(1.0 + 1e-7 * (step > 0),), batches=shapes.get(step, [[argument(8)]])) for step in range(5)]
    reference = [Step(batches=step.batches) for step in free]
    return compared_study(folder, scores, reference=reference, free=free)


def test_the_findings_say_how_many_steps_of_each_kind_were_compared(tmp_path: Path) -> None:
    pair = only_pair(ragged_study(tmp_path / "left", {0: 0.5, 1: 1.0, 4: 2.0})[1])
    assert [(kind.aspect, kind.steps, kind.first, kind.compared) for kind in pair.kinds] == [
        ("batch", 1, 3, 0), ("batch", 4, 0, 3)
    ]  # fmt: skip
    pair = only_pair(ragged_study(tmp_path / "all", {0: 0.5, 3: 2.0})[1])
    assert [kind.compared for kind in pair.kinds] == [1, 1]
    assert only_pair(ragged_study(tmp_path / "alike", {0: 0.5}, ragged=False)[1]).kinds == ()


def test_further_steps_are_those_of_kinds_that_were_not_compared(tmp_path: Path) -> None:
    _, runs = ragged_study(tmp_path / "left", {0: 0.5, 1: 1.0, 4: 2.0})
    assert steps_of_further_kinds(runs[0], runs[1], 1) == (3,)
    _, compared = ragged_study(tmp_path / "all", {0: 0.5, 3: 2.0})
    assert steps_of_further_kinds(compared[0], compared[1], 1) == ()
    # a fault is one in any case
    _, faulty = ragged_study(tmp_path / "fault", {0: 0.5, 1: 2 * FAULT})
    assert steps_of_further_kinds(faulty[0], faulty[1], 1) == ()


def test_the_steps_of_further_kinds_are_scored(tmp_path: Path) -> None:
    study, runs = ragged_study(tmp_path, {0: 0.5, 1: 1.0, 4: 2.0})
    study.make(Experiment("kinds", "cpu", "compile"), training(), {3: Outcome()}, states=[3])
    further = Experiment("kinds", "compile", "cpu")
    study.make(further, training(), {3: Outcome(3 * FAULT)}, events=resynced([3]))
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_significant_step) == ("beyond-rounding", 3)
    assert [kind.compared for kind in pair.kinds if kind.first == 3] == [1]
