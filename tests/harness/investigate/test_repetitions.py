"""The search for the call that a mode does not repeat, from trainings that were written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Step
from tests.harness.investigate.laboratory_answers import (
    SCRIPT,
    Training,
    WrittenLaboratory,
    call,
    in_steps,
    inquiry,
    training,
)

from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.laboratory import Interrupted
from numdrift.harness.investigate.judging.judge import judge
from numdrift.harness.investigate.questions.question import Inquiry
from numdrift.harness.investigate.questions.repetitions import Repeated, Repetitions, recorded_steps, repeated_of
from numdrift.harness.investigate.questions.taped_calls import TapedCalls
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.records.values.call_record import SETUP_PHASE, CallRecord
from numdrift.harness.records.values.unfilled_read import UnfilledRead, write_unfilled

PLAN = InvestigationRequest()
SAME = (1.0, 1.0, 1.0)
IN_0, IN_1, IN_2, SHORTER = (9.0, 1.0, 1.0), (1.0, 9.0, 1.0), (1.0, 1.0, 9.0), (1.0, 1.0)


def pair(folder: Path, controls: Mapping[str, Sequence[float]], b: str, a: str = "cpu", **facts: Any) -> Inquiry:
    """A pair in which every loss is 1; the losses of its controls are by mode."""
    reference, run = (training(folder, mode, [Step()] * 3, **facts) for mode in (a, b))
    for mode, recorded in ((a, reference), (b, run)):
        losses = controls.get(recorded.path.name)
        if losses is not None:
            again = Experiment("again", recorded.path.name)
            training(folder, mode, [Step([loss]) for loss in losses], experiment=again)
    return inquiry(reference, run, "nondeterministic")


def looked(found: Inquiry, answers: Mapping[str, Training]) -> WrittenLaboratory:
    laboratory = WrittenLaboratory(answers)
    Repetitions().look(laboratory, [found], PLAN)
    return laboratory


def answered(found: Inquiry) -> tuple[list[Culprit], list[str]]:
    """The culprits and the sentences, from what now lies on disk."""
    answer = Repetitions().answer(inquiry(found.evidence.a, found.evidence.b, "nondeterministic").evidence, 16.0, None)
    return list(answer.culprits), list(answer.sentences)


def adds(bits: str, *, op: str = "index_add", line: int = 7) -> Training:
    """A training whose second step adds up to these bits."""
    zeros = call("zeros", 3, results=[(0, "0")])
    return Training(in_steps([zeros], [call(op, line, tensors=[(0, "0")], results=[(1, bits)])]))


# Of which mode it is asked.


@pytest.mark.parametrize(
    ("controls", "facts", "is_asked"),
    [
        pytest.param({"cpu": SAME, "compile": IN_2}, {}, True, id="the mode"),
        pytest.param({"cpu": IN_0, "compile": SAME}, {}, True, id="the reference"),
        pytest.param({"compile": IN_2}, {}, True, id="the mode, of a reference without a control"),
        pytest.param({"cpu": SAME, "compile": SAME}, {}, False, id="both repeat"),
        pytest.param({}, {}, False, id="no control"),
        pytest.param({"compile": SHORTER}, {}, False, id="another number of steps alone"),
        pytest.param({"compile": (1.0, 9.0)}, {}, True, id="another number of steps, and other bits before"),
        pytest.param({"compile": IN_2}, {"world_size": 2}, False, id="several processes"),
        pytest.param({"compile": IN_2}, {"in_process": True}, False, id="within a running process"),
    ],
)
def test_it_is_asked_of_one_process_whose_control_has_other_bits(
    tmp_path: Path, controls: Mapping[str, Sequence[float]], facts: dict[str, Any], *, is_asked: bool
) -> None:
    found = pair(tmp_path, controls, "compile", **facts)
    assert Repetitions().asks(found, PLAN) is is_asked
    # and what is not asked runs nothing
    if not is_asked:
        assert looked(found, {}).rounds == []


@pytest.mark.parametrize("verdict", ["different-setup", "beyond-rounding", "failed", "identical", None])
def test_another_verdict_asks_for_no_training(tmp_path: Path, verdict: str | None) -> None:
    found = pair(tmp_path, {"compile": IN_2}, "compile")
    asked_of = inquiry(found.evidence.a, found.evidence.b, verdict)
    assert not Repetitions().asks(asked_of, PLAN)


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        pytest.param('{"schema": 1, "steps": 3, "trainings": 3}', False, id="nothing was found"),
        pytest.param('{"schema": 1, "steps": 0, "trainings": 0, "reason": "no memory"}', False, id="it failed"),
        pytest.param('{"schema": 2, "steps": 3, "trainings": 3}', True, id="another schema"),
        pytest.param('{"schema": 1, "steps": 3, "trai', True, id="cut off"),
        pytest.param('{"schema": 1, "trainings": 3}', True, id="a field is missing"),
        pytest.param("[]", True, id="no record"),
    ],
)
def test_it_is_asked_again_only_where_no_result_can_be_read(tmp_path: Path, text: str, *, is_asked: bool) -> None:
    found = pair(tmp_path, {"compile": IN_2}, "compile")
    (tmp_path / "evidence" / "compile-calls-0-repetitions.json").write_text(text, encoding="utf-8")
    assert Repetitions().asks(found, PLAN) is is_asked


def test_a_second_call_takes_up_the_first_ones_result(tmp_path: Path) -> None:
    found = pair(tmp_path, {"compile": IN_1}, "compile")
    looked(found, {"compile-calls-0": adds("p"), "compile-calls-1": adds("q")})
    assert not Repetitions().asks(found, PLAN)
    # when it is looked into all the same, then nothing is made
    assert looked(found, {}).rounds == []


# Which runs are repeated, and how often.

GRAPH = "graph 0/0"


@pytest.mark.parametrize(
    ("mode", "answers", "rounds", "shown"),
    [
        pytest.param(
            "compile",
            {"compile-calls-0": adds("p"), "compile-calls-1": adds("q")},
            [["compile-calls-0", "compile-calls-1"]],
            (2, "computed", False),
            id="two that differ are enough",
        ),
        pytest.param(
            "compile",
            {"compile-calls-0": adds("p"), "compile-calls-1": adds("p"), "compile-calls-2": adds("q")},
            [["compile-calls-0", "compile-calls-1"], ["compile-calls-2"]],
            (3, "computed", False),
            id="of two that are the same a third is made",
        ),
        pytest.param(
            "compile",
            {f"compile-calls-{number}": adds("p") for number in range(3)},
            [["compile-calls-0", "compile-calls-1"], ["compile-calls-2"]],
            (3, None, False),
            id="three that are the same are the last",
        ),
        pytest.param(
            "compile",
            {
                "compile-calls-0": adds("p", op=GRAPH),
                "compile-calls-1": adds("q", op=GRAPH),
                "compile-calls-op-by-op-0": adds("p"),
                "compile-calls-op-by-op-1": adds("q"),
            },
            [["compile-calls-0", "compile-calls-1"], ["compile-calls-op-by-op-0", "compile-calls-op-by-op-1"]],
            (2, "computed", True),
            id="a graph that differs is taken apart op by op",
        ),
        pytest.param(
            "compile",
            {
                "compile-calls-0": adds("p", line=0),
                "compile-calls-1": adds("q", line=0),
                "compile-calls-op-by-op-0": adds("p"),
                "compile-calls-op-by-op-1": adds("q"),
            },
            [["compile-calls-0", "compile-calls-1"], ["compile-calls-op-by-op-0", "compile-calls-op-by-op-1"]],
            (2, "computed", True),
            id="a call without a line is looked for op by op",
        ),
        pytest.param(
            "compile",
            {
                "compile-calls-0": adds("p", op=GRAPH),
                "compile-calls-1": adds("q", op=GRAPH),
                **{f"compile-calls-op-by-op-{number}": adds("p") for number in range(3)},
            },
            [
                ["compile-calls-0", "compile-calls-1"],
                ["compile-calls-op-by-op-0", "compile-calls-op-by-op-1"],
                ["compile-calls-op-by-op-2"],
            ],
            (2, "computed", False),
            id="a graph whose ops repeat stays the culprit",
        ),
        pytest.param(
            "cpu",
            {"cpu-calls-0": adds("p", line=0), "cpu-calls-1": adds("q", line=0)},
            [["cpu-calls-0", "cpu-calls-1"]],
            (2, "computed", False),
            id="an eager mode has no other way op by op",
        ),
        pytest.param(
            "lazy",
            {
                "lazy-calls-taped-0": Training(),
                "lazy-calls-op-by-op-0": adds("p"),
                "lazy-calls-op-by-op-1": adds("q"),
            },
            [["lazy-calls-taped-0"], ["lazy-calls-op-by-op-0", "lazy-calls-op-by-op-1"]],
            (2, "computed", True),
            id="of lazy tensors a step is taped, then the script op by op",
        ),
        pytest.param(
            "lazy",
            {
                "lazy-calls-taped-0": Training(status="crashed", steps=0),
                "lazy-calls-op-by-op-0": adds("p"),
                "lazy-calls-op-by-op-1": adds("p"),
                "lazy-calls-op-by-op-2": adds("p"),
            },
            [
                ["lazy-calls-taped-0"],
                ["lazy-calls-op-by-op-0", "lazy-calls-op-by-op-1"],
                ["lazy-calls-op-by-op-2"],
            ],
            (3, None, True),
            id="where the tape fails the script is followed all the same",
        ),
        pytest.param(
            "xla",
            {"xla-calls-op-by-op-0": adds("p"), "xla-calls-op-by-op-1": adds("q")},
            [["xla-calls-op-by-op-0", "xla-calls-op-by-op-1"]],
            (2, "computed", True),
            id="a mode that can tape itself is asked for no tape",
        ),
    ],
)
def test_a_mode_is_trained_until_two_trainings_differ(
    tmp_path: Path,
    mode: str,
    answers: Mapping[str, Training],
    rounds: Sequence[Sequence[str]],
    shown: tuple[int, str | None, bool],
) -> None:
    # given a mode whose control differs in step 1
    found = pair(tmp_path, {mode: IN_1}, mode, a="reference=cpu")
    assert Repetitions().asks(found, PLAN)
    # when
    laboratory = looked(found, answers)
    # then
    assert laboratory.rounds == rounds
    repeated = repeated_of(found.evidence.b)
    assert repeated is not None
    what = None if repeated.difference is None else repeated.difference.what
    assert (repeated.trainings, what, repeated.by_stand_in) == shown
    assert (repeated.steps, repeated.reason) == (2, "")
    assert not Repetitions().asks(found, PLAN)


def test_the_modes_of_a_pair_are_repeated_in_one_round_until_each_differs(tmp_path: Path) -> None:
    found = pair(tmp_path, {"cpu": IN_1, "compile": IN_1}, "compile")
    laboratory = looked(
        found,
        {
            "cpu-calls-0": adds("p"),
            "cpu-calls-1": adds("q"),
            "compile-calls-0": adds("p"),
            "compile-calls-1": adds("p"),
            "compile-calls-2": adds("q"),
        },
    )
    assert laboratory.rounds == [
        ["compile-calls-0", "compile-calls-1", "cpu-calls-0", "cpu-calls-1"],
        ["compile-calls-2"],
    ]
    assert laboratory.titles == [
        "cpu and compile again, to see which call does not repeat",
        "compile again, to see which call does not repeat: the first two runs were equal",
    ]


def test_the_reference_of_several_pairs_is_repeated_once(tmp_path: Path) -> None:
    # given a reference that does not repeat, and two modes that do
    first = pair(tmp_path, {"cpu": IN_1, "compile": SAME}, "compile")
    b = training(tmp_path, "lazy", [Step()] * 3)
    second = inquiry(first.evidence.a, b, "nondeterministic")
    laboratory = WrittenLaboratory({"cpu-calls-0": adds("p"), "cpu-calls-1": adds("q")})
    # when
    Repetitions().look(laboratory, [first, second], PLAN)
    # then both pairs name its call
    assert laboratory.rounds == [["cpu-calls-0", "cpu-calls-1"]]
    assert [[culprit.name for culprit in answered(found)[0]] for found in (first, second)] == [["cpu"], ["cpu"]]


@pytest.mark.parametrize(
    ("mode", "name", "changes"),
    [
        (
            "compile,contract=fast",
            "compile-calls-0",
            {"mode": "compile,contract=fast", "calls": "0,1", "tapes": "None"},
        ),
        ("compile,contract=fast", "compile-calls-op-by-op-1", {"mode": "cpu", "calls": "0,1", "tapes": "None"}),
        ("compile,device=cuda", "compile-calls-op-by-op-0", {"mode": "cuda,device=cuda", "calls": "0,1"}),
        ("lazy,mark_step=step", "lazy-calls-taped-0", {"mode": "lazy,mark_step=step", "calls": "None", "tapes": "1"}),
        ("lazy,mark_step=step", "lazy-calls-op-by-op-0", {"mode": "cpu", "calls": "0,1", "tapes": "None"}),
    ],
)
def test_a_repetition_records_up_to_the_step_in_which_the_control_differs(
    tmp_path: Path, mode: str, name: str, changes: Mapping[str, str]
) -> None:
    found = pair(tmp_path, {mode.partition(",")[0]: IN_1}, mode)
    graphs = {number: adds(bits, op=GRAPH) for number, bits in enumerate("pq")}
    base = mode.partition(",")[0]
    answers = {f"{base}-calls-{how}{number}": graphs[number] for how in ("", "op-by-op-") for number in graphs}
    laboratory = looked(found, {**answers, f"{base}-calls-taped-0": Training()})
    plan = laboratory.plans[name]
    recorded = {
        "mode": str(plan.modes[0]).partition("=")[2],
        "calls": str(plan.calls),
        "tapes": str(plan.tapes),
    }
    assert {key: recorded[key] for key in changes} == changes
    assert plan.until == 1
    assert str(plan.script) == SCRIPT
    assert plan.tapes is None or plan.noise_replays == 0


def test_a_mode_is_named_by_its_experiment_and_keeps_its_environment(tmp_path: Path) -> None:
    found = pair(tmp_path, {"b": IN_1}, "b=cpu,env.FAULT=1,seed=3")
    laboratory = looked(found, {"b-calls-0": adds("p"), "b-calls-1": adds("q")})
    assert [str(plan.modes[0]) for plan in laboratory.plans.values()] == [
        "b-calls-0=cpu,seed=3,env.FAULT=1",
        "b-calls-1=cpu,seed=3,env.FAULT=1",
    ]
    assert [plan.experiment for plan in laboratory.plans.values()] == [
        Experiment("calls", "b", detail="0"),
        Experiment("calls", "b", detail="1"),
    ]


@pytest.mark.parametrize(
    ("last", "ranges"),
    [(0, [(0, 0)]), (5, [(0, 5)]), (127, [(0, 127)]), (128, [(0, 31), (33, 128)]), (999, [(0, 31), (904, 999)])],
)
def test_of_many_steps_the_first_and_the_last_are_recorded(last: int, ranges: Sequence[tuple[int, int]]) -> None:
    assert recorded_steps(last) == [step for first, end in ranges for step in range(first, end + 1)]


def test_the_second_training_of_a_mode_is_its_control_where_it_went_on_from_its_own_state(tmp_path: Path) -> None:
    # given a mode without a repetition of its own, and its training that began step 1 in the reference's state
    a, b = (training(tmp_path, mode, [Step()] * 3) for mode in ("cpu", "compile"))
    events = [{"event": "resynced", "step": 1}, {"event": "rejoined", "step": 2}]
    forced = Experiment("forced", "compile", "cpu")
    training(tmp_path, "compile", [Step([loss]) for loss in (1.0, 5.0, 9.0)], experiment=forced, said=events)
    found = inquiry(a, b, "nondeterministic")
    # when
    laboratory = looked(found, {f"compile-calls-{number}": adds(bits) for number, bits in enumerate("pq")})
    # then the step that it began elsewhere is no difference, and the next one is
    assert laboratory.plans["compile-calls-0"].until == 2


# Which call is to blame, and what helps.

ZEROS = call("zeros", 3, results=[(0, "0")])
FROM_SEED = "make it from a seed that is the same in every run"
SAME_SEED = "seed it with the same number in every run"


def add_by(thread: int, before: str, part: str, after: str) -> CallRecord:
    inputs = [(0, before), (20 + thread, part)]
    return call("add_", 7, tensors=inputs, results=[(0, after)], written=[0], thread=thread)


DIFFERENCES = [
    pytest.param(
        [call("index_add", 7, tensors=[(0, "0")], results=[(1, "p")], module="net.1")],
        [call("index_add", 7, tensors=[(0, "0")], results=[(1, "q")], module="net.1")],
        {"what": "computed", "op": "aten.index_add", "line": 7, "module": "net.1"},
        f"in step 1 aten.index_add in the forward of net.1, {SCRIPT}:7 computes different bits from equal inputs",
        "add threads=1 to the mode",
        id="an op that gives other bits",
    ),
    pytest.param(
        [call("graph 0/0", 7, phase="backward", tensors=[(0, "0")], results=[(1, "p")])],
        [call("graph 0/0", 7, phase="backward", tensors=[(0, "0")], results=[(1, "q")])],
        {"what": "computed", "op": "graph 0/0", "line": 7, "phase": "backward"},
        f"in step 1 compiled graph 0/0 in the backward, {SCRIPT}:7 computes different bits from equal inputs",
        "add deterministic=on to the mode",
        id="a graph that gives other bits",
    ),
    pytest.param(
        [call("mul", 7, tensors=[(0, "0")], numbers="1.5, None", results=[(1, "p")])],
        [call("mul", 7, tensors=[(0, "0")], numbers="1.25, None", results=[(1, "q")])],
        {"what": "number", "op": "aten.mul", "line": 7},
        "receives a different number in each run (1.5 and 1.25), which came from outside of torch",
        FROM_SEED,
        id="a number of the time or of another generator",
    ),
    pytest.param(
        [call("lift_fresh", 7, tensors=[(5, "p")], results=[(5, "")]), call("add", 8, tensors=[(5, "p")])],
        [call("lift_fresh", 7, tensors=[(5, "q")], results=[(5, "")]), call("add", 8, tensors=[(5, "q")])],
        {"what": "outside", "op": "aten.lift_fresh", "line": 7},
        "takes a tensor whose values differ from run to run",
        FROM_SEED,
        id="a tensor from outside",
    ),
    pytest.param(
        [call("rand", 7, results=[(1, "p")], drew=[("torch", "p", "p2")])],
        [call("rand", 7, results=[(1, "q")], drew=[("torch", "q", "q2")])],
        {"what": "generator", "op": "aten.rand", "line": 7},
        "draws from torch's generator, whose state differs from run to run",
        SAME_SEED,
        id="a draw from a generator in a different state",
    ),
    pytest.param(
        [call("", 7, phase="data", drew=[("numpy", "s", "p")])],
        [call("", 7, phase="data", drew=[("numpy", "s", "q")])],
        {"what": "seeded", "op": None, "line": 7, "phase": "data"},
        f"in step 1 {SCRIPT}:7 sets NumPy's generator to a different state in each run",
        SAME_SEED,
        id="a line that seeds with another number",
    ),
    pytest.param(
        [add_by(1, "0", "x", "0x"), add_by(2, "0x", "y", "0xy"), call("mm", 9, tensors=[(0, "0xy")])],
        [add_by(2, "0", "y", "0y"), add_by(1, "0y", "x", "0yx"), call("mm", 9, tensors=[(0, "0yx")])],
        {"what": "race", "op": "aten.add_", "line": 7},
        f"threads race: aten.add_ in the forward, {SCRIPT}:7 writes to the same memory in a different order",
        "let the threads write in a fixed order, or each to its own memory",
        id="threads that race, and not the op that reads",
    ),
    pytest.param(
        [call("mul", 7, tensors=[(0, "p")], results=[(1, "p")])],
        [call("mul", 7, tensors=[(0, "q")], results=[(1, "q")])],
        {"what": "changed", "op": "aten.mul", "line": 7},
        f"reads memory that aten.zeros in the forward, {SCRIPT}:3 has returned and that no op has written since",
        "find out what writes to it, and let the step wait for that",
        id="memory that something else has written",
    ),
    pytest.param(
        [call("empty", 6, results=[(4, "p")]), call("mul", 7, tensors=[(4, "p")], results=[(1, "p")])],
        [call("empty", 6, results=[(4, "q")]), call("mul", 7, tensors=[(4, "q")], results=[(1, "q")])],
        {"what": "unfilled", "op": "aten.mul", "line": 7},
        f"reads uninitialized memory that aten.empty in the forward, {SCRIPT}:6 has allocated",
        "fill it before it is read (torch.zeros in place of torch.empty)",
        id="memory without values, where it is read",
    ),
    pytest.param(
        [call("mul", 7, tensors=[(0, "0")], results=[(1, "m")])],
        [call("exp", 9, tensors=[(0, "0")], results=[(1, "e")])],
        {"what": "branch", "op": "aten.mul", "line": 7},
        f"aten.mul in the forward, {SCRIPT}:7 and the other with aten.exp in the forward, {SCRIPT}:9, although every",
        FROM_SEED,
        id="another way of the script",
    ),
]


@pytest.mark.parametrize(("first", "second", "blamed", "text", "remedy"), DIFFERENCES)
def test_the_call_that_first_differs_is_blamed_with_what_helps(
    tmp_path: Path,
    first: Sequence[CallRecord],
    second: Sequence[CallRecord],
    blamed: Mapping[str, Any],
    text: str,
    remedy: str,
) -> None:
    # given a mode whose control differs in step 2, and two trainings that come apart in step 1
    found = pair(tmp_path, {"b": IN_2}, "b=cpu")
    later = [[call("sum", 30, tensors=[(0, bits)], results=[(40, bits)])] for bits in "vw"]
    trainings = [Training(in_steps([ZEROS], calls, rest)) for calls, rest in zip((first, second), later, strict=True)]
    looked(found, {f"b-calls-{number}": made for number, made in enumerate(trainings)})
    # when
    [culprit], [sentence] = answered(found)
    # then
    assert (culprit.what, culprit.op, culprit.source) == (
        blamed["what"],
        blamed["op"],
        f"{SCRIPT}:{blamed['line']}",
    )
    assert (culprit.step, culprit.name, culprit.kind, culprit.status) == (1, "b", "nondeterminism", "culprit")
    assert (culprit.phase, culprit.module) == (blamed.get("phase", "forward"), blamed.get("module"))
    assert text in str(culprit.text)
    assert sentence == f"b does not repeat: loss 0 of step 2 differs; remedy: {remedy}"


def test_a_draw_before_the_first_step_is_of_no_step(tmp_path: Path) -> None:
    found = pair(tmp_path, {"b": IN_0}, "b=cpu")
    seeds = [call("", 2, phase=SETUP_PHASE, drew=[("python", "s", bits)]) for bits in "pq"]
    looked(found, {f"b-calls-{number}": Training([seed]) for number, seed in enumerate(seeds)})
    [culprit], _ = answered(found)
    assert str(culprit.text).startswith(
        f"before the first step {SCRIPT}:2 sets Python's generator to a different state"
    )
    assert culprit.phase == SETUP_PHASE


@pytest.mark.parametrize(("mode", "is_taped"), [("compile", False), ("lazy", True), ("xla", False)])
def test_a_call_that_the_script_shows_op_by_op_is_marked_as_such(tmp_path: Path, mode: str, *, is_taped: bool) -> None:
    found = pair(tmp_path, {mode: IN_1}, mode)
    answers = {f"{mode}-calls-op-by-op-{number}": adds(bits) for number, bits in enumerate("pq")}
    own = {f"{mode}-calls-{number}": adds(bits, op=GRAPH) for number, bits in enumerate("pq")}
    laboratory = looked(found, {**answers, **own, "lazy-calls-taped-0": Training()})
    [culprit], _ = answered(found)
    assert culprit.op == "aten.index_add"
    assert str(culprit.text).endswith(f", as shown by a training run that executes every op of {mode} separately")
    assert ("lazy-calls-taped-0" in laboratory.plans) is is_taped


def test_each_of_two_modes_that_do_not_repeat_has_its_own_call(tmp_path: Path) -> None:
    found = pair(tmp_path, {"cpu": IN_1, "b": IN_2}, "b=cpu")
    answers = {f"cpu-calls-{number}": adds(bits, line=7) for number, bits in enumerate("pq")}
    answers |= {f"b-calls-{number}": adds(bits, op="cumsum", line=8) for number, bits in enumerate("pq")}
    laboratory = looked(found, answers)
    culprits, sentences = answered(found)
    assert [(culprit.name, culprit.op, culprit.source) for culprit in culprits] == [
        ("cpu", "aten.index_add", f"{SCRIPT}:7"),
        ("b", "aten.cumsum", f"{SCRIPT}:8"),
    ]
    assert [sentence.partition(":")[0] for sentence in sentences] == ["cpu does not repeat", "b does not repeat"]
    # and each is recorded up to its own step
    assert {name: plan.until for name, plan in laboratory.plans.items()} == {
        "cpu-calls-0": 1, "cpu-calls-1": 1, "b-calls-0": 2, "b-calls-1": 2,
    }  # fmt: skip


def test_the_judge_names_the_call_beside_its_verdict(tmp_path: Path) -> None:
    found = pair(tmp_path, {"cpu": SAME, "b": IN_1}, "b=cpu")
    looked(found, {"b-calls-0": adds("p"), "b-calls-1": adds("q")})
    [judged] = judge([found.evidence.a, found.evidence.b]).pairs
    assert judged.verdict == "nondeterministic"
    assert [(culprit.what, culprit.source) for culprit in judged.culprits] == [("computed", f"{SCRIPT}:7")]
    assert "remedy: add threads=1 to the mode" in "\n".join(judged.text)


# Where nothing is found.


@pytest.mark.parametrize(
    ("mode", "answers", "sentence"),
    [
        pytest.param(
            "cpu",
            [adds("p")] * 3,
            "cpu: 3 more training runs computed the same bits in every call up to step 1, so the cause "
            "did not appear again",
            id="it did not show again",
        ),
        pytest.param(
            "xla",
            [adds("p")] * 3,
            "xla: its ops have no values when they are called. Executed one by one on the CPU, they repeat bit for "
            "bit, so it is not known which of them does not repeat in this mode",
            id="lazy tensors whose ops repeat on the CPU",
        ),
        pytest.param(
            "cpu",
            [adds("p"), Training(status="crashed", steps=0)],
            "cpu: it is not known which call does not repeat: a training run that recorded its calls did not finish",
            id="the second training crashed before its first step",
        ),
        pytest.param(
            "cpu",
            [Training(status="out-of-memory", steps=0), adds("p")],
            "cpu: it is not known which call does not repeat: a training run that recorded its calls did not finish",
            id="the first training had no memory",
        ),
        pytest.param(
            "cpu",
            [adds("p"), adds("p"), Training(status="timeout", steps=0)],
            "cpu: it is not known which call does not repeat: a training run that recorded its calls did not finish",
            id="the third training ran out of time",
        ),
        pytest.param(
            "cpu",
            [adds("p"), Training(rest="{}\n")],
            "calls.jsonl: is damaged: '{}\\n' is not a call",
            id="a damaged record",
        ),
    ],
)
def test_it_is_said_why_no_call_is_known(tmp_path: Path, mode: str, answers: Sequence[Training], sentence: str) -> None:
    found = pair(tmp_path, {mode: IN_1}, mode, a="reference=cpu")
    how = "" if mode == "cpu" else "op-by-op-"
    looked(found, {f"{mode}-calls-{how}{number}": answer for number, answer in enumerate(answers)})
    culprits, [line] = answered(found)
    assert culprits == []
    assert line.startswith(f"{mode}: ") and line.endswith(sentence)
    # and what failed is not made again by the next call
    assert not Repetitions().asks(found, PLAN)


def test_a_training_whose_stand_in_fails_says_so(tmp_path: Path) -> None:
    found = pair(tmp_path, {"xla": IN_1}, "xla")
    looked(found, {"xla-calls-op-by-op-0": adds("p"), "xla-calls-op-by-op-1": Training(status="crashed", steps=0)})
    assert repeated_of(found.evidence.b) == Repeated(
        2, 2, reason="a training run that recorded its calls did not finish", by_stand_in=True
    )


def test_a_graph_stays_the_culprit_where_the_script_fails_op_by_op(tmp_path: Path) -> None:
    found = pair(tmp_path, {"compile": IN_1}, "compile")
    own = {f"compile-calls-{number}": adds(bits, op=GRAPH) for number, bits in enumerate("pq")}
    failed = {f"compile-calls-op-by-op-{number}": Training(status="crashed", steps=0) for number in range(2)}
    looked(found, {**own, **failed})
    [culprit], _ = answered(found)
    assert (culprit.op, culprit.source) == (GRAPH, f"{SCRIPT}:7")
    assert "as the script shows" not in str(culprit.text)


def test_what_an_unrecorded_step_has_left_blames_no_call(tmp_path: Path) -> None:
    # given a control that differs in step 200, of which the first 32 and the last 96 are recorded
    runs = [training(tmp_path, mode, [Step()] * 202) for mode in ("cpu", "b=cpu")]
    losses = [1.0] * 200 + [9.0, 1.0]
    training(tmp_path, "b=cpu", [Step([loss]) for loss in losses], experiment=Experiment("again", "b"))
    found = inquiry(runs[0], runs[1], "nondeterministic")
    trainings = [Training([ZEROS, call("mul", 7, step=150, tensors=[(0, bits)], results=[(1, bits)])]) for bits in "pq"]
    # when
    laboratory = looked(found, {f"b-calls-{number}": made for number, made in enumerate(trainings)})
    culprits, [sentence] = answered(found)
    # then
    assert laboratory.plans["b-calls-0"].calls == StepSelection.of([*range(32), *range(105, 201)])
    assert culprits == []
    assert sentence == (
        "b: in step 150 the state left by an earlier step differs, but the calls of only 128 steps were recorded: "
        "the call that does not repeat is in none of these"
    )


def test_a_record_that_a_kill_has_cut_off_in_a_line_is_read_up_to_there(tmp_path: Path) -> None:
    found = pair(tmp_path, {"b": IN_1}, "b=cpu")
    whole = adds("q")
    cut = Training(whole.calls, rest='[1,"aten.mul.Ten')
    looked(found, {"b-calls-0": adds("p"), "b-calls-1": cut})
    [culprit], _ = answered(found)
    assert (culprit.what, culprit.source) == ("computed", f"{SCRIPT}:7")


@pytest.mark.parametrize(
    "left",
    [
        pytest.param([[ZEROS], [call("mul", 7, tensors=[(0, "0")], results=[(1, "m")])]], id="in a step"),
        pytest.param([[ZEROS]], id="between two steps"),
    ],
)
@pytest.mark.parametrize("status", ["timeout", "crashed"])
def test_a_training_that_did_not_get_through_blames_no_call(
    tmp_path: Path, left: Sequence[Sequence[CallRecord]], status: str
) -> None:
    # given a training that went on, and one that was ended before it came as far
    mul, exp = (
        call("mul", 7, tensors=[(0, "0")], results=[(1, "m")]),
        call("exp", 8, tensors=[(1, "m")], results=[(2, "e")]),
    )
    found = pair(tmp_path, {"b": IN_2}, "b=cpu")
    whole, ended = (
        Training(in_steps([ZEROS], [mul, exp], [mul, exp]), steps=3),
        Training(in_steps(*left), status=status),
    )
    # when
    looked(found, {"b-calls-0": whole, "b-calls-1": ended, "b-calls-2": ended})
    # then its end is not a difference of the script
    culprits, [sentence] = answered(found)
    assert culprits == []
    assert "a training run that recorded its calls did not finish" in sentence


@pytest.mark.parametrize("status", ["timeout", "crashed", "nonfinite"])
def test_a_training_that_ended_after_the_call_blames_it(tmp_path: Path, status: str) -> None:
    found = pair(tmp_path, {"b": IN_2}, "b=cpu")
    looked(found, {"b-calls-0": adds("p"), "b-calls-1": Training(adds("q").calls, status=status)})
    [culprit], _ = answered(found)
    assert (culprit.what, culprit.source) == ("computed", f"{SCRIPT}:7")


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_round_leaves_no_result_and_is_asked_for_again(tmp_path: Path, *, first: bool) -> None:
    found = pair(tmp_path, {"b": IN_1}, "b=cpu")
    made = {} if first else {"b-calls-0": adds("p"), "b-calls-1": adds("p")}
    with pytest.raises(Interrupted):
        looked(found, made)
    assert repeated_of(found.evidence.b) is None
    assert Repetitions().asks(found, PLAN)
    assert answered(found) == ([], [])


# Memory without values in modes of lazy tensors.


def read_of(op: str, made_by: str, step: int = 1, line: int = 12) -> UnfilledRead:
    return UnfilledRead(call(op, line, step=step), made_by)


@pytest.mark.parametrize(
    ("unfilled", "text", "remedy"),
    [
        (
            read_of("empty", "aten.empty.default"),
            f"in step 1 aten.empty in the forward, {SCRIPT}:12 allocates memory that no op has filled",
            "fill it before it is read (torch.zeros in place of torch.empty)",
        ),
        (
            read_of("masked_scatter", "aten.empty.memory_format"),
            f"{SCRIPT}:12 returns memory that aten.empty.memory_format has allocated without values and that no op has filled",
            "replace aten.masked_scatter.default with a different op: this mode loses what it writes",
        ),
    ],
)
def test_lazy_tensors_that_read_memory_without_values_are_not_trained_again(
    tmp_path: Path, unfilled: UnfilledRead, text: str, remedy: str
) -> None:
    found = pair(tmp_path, {"lazy": IN_1}, "lazy")
    laboratory = looked(found, {"lazy-calls-taped-0": Training(unfilled=[unfilled])})
    assert laboratory.rounds == [["lazy-calls-taped-0"]]
    assert laboratory.titles == ["the ops of lazy in the step that does not repeat"]
    [culprit], [sentence] = answered(found)
    assert (culprit.what, culprit.step, culprit.source) == ("unfilled", 1, f"{SCRIPT}:12")
    assert (culprit.name, culprit.kind, culprit.op) == ("lazy", "nondeterminism", unfilled.call.name)
    assert text in str(culprit.text)
    assert sentence == f"lazy does not repeat: loss 0 of step 1 differs; remedy: {remedy}"
    # and the taped step is known from now on
    assert not Repetitions().asks(inquiry(found.evidence.a, found.evidence.b, "nondeterministic"), PLAN)


def test_only_the_mode_whose_tape_shows_nothing_goes_on(tmp_path: Path) -> None:
    found = pair(tmp_path, {"first": IN_1, "second": IN_1}, "second=lazy", a="first=lazy,mark_step=step")
    laboratory = looked(
        found,
        {
            "first-calls-taped-0": Training(unfilled=[read_of("empty", "aten.empty.default")]),
            "second-calls-taped-0": Training(),
            "second-calls-op-by-op-0": adds("p"),
            "second-calls-op-by-op-1": adds("q"),
        },
    )
    assert laboratory.rounds == [
        ["first-calls-taped-0", "second-calls-taped-0"],
        ["second-calls-op-by-op-0", "second-calls-op-by-op-1"],
    ]
    culprits, _ = answered(found)
    assert [(culprit.name, culprit.what) for culprit in culprits] == [("first", "unfilled"), ("second", "computed")]


def test_a_mode_whose_memory_is_known_is_left_out_when_the_search_goes_on(tmp_path: Path) -> None:
    # given a search that was interrupted when the tape of the first of two modes had shown the memory that it reads
    found = pair(tmp_path, {"first": IN_1, "second": IN_1}, "second=lazy", a="first=lazy,mark_step=step")
    taped = {
        "first-calls-taped-0": Training(unfilled=[read_of("empty", "aten.empty.default")]),
        "second-calls-taped-0": Training(),
    }
    with pytest.raises(Interrupted):
        looked(found, taped)
    assert Repetitions().asks(found, PLAN)
    # when
    further = {f"second-calls-op-by-op-{number}": adds(bits) for number, bits in enumerate("pq")}
    laboratory = looked(found, {**taped, **further})
    # then
    assert laboratory.rounds == [["second-calls-taped-0"], sorted(further)]


@pytest.mark.parametrize(
    ("steps", "damaged", "named"),
    [([2], False, 2), ([4, 2, 9], False, 2), ([], False, None), ([2], True, None)],
)
def test_memory_without_values_that_holds_the_same_is_told_by_the_tapes_that_are_there(
    tmp_path: Path, steps: Sequence[int], named: int | None, *, damaged: bool
) -> None:
    # given a mode that repeats, and the tapes of some steps in two of its trainings
    found = pair(tmp_path, {"cpu": SAME, "lazy": SAME}, "lazy")
    training(tmp_path, "lazy", [Step()] * 3, experiment=Experiment("forced", "lazy", "cpu"))
    for place, step in enumerate(steps):
        folder = tmp_path / "evidence" / ("lazy-from-cpu" if place else "lazy-again")
        write_unfilled(folder, [read_of("empty", "aten.empty.default", step, line=10 + step)])
    if damaged:
        for file in tmp_path.glob("evidence/*/tapes/*"):
            file.write_text('{"schema": 1, "reads": [{}]}', encoding="utf-8")
    # when
    evidence = inquiry(found.evidence.a, found.evidence.b, "identical").evidence
    answer = TapedCalls().answer(evidence, 16.0, None)
    culprits, sentences = answer.culprits, answer.sentences
    # then the first of these steps is named, and no training was needed
    assert [(culprit.step, culprit.what, culprit.source) for culprit in culprits] == (
        [] if named is None else [(named, "unfilled", f"{SCRIPT}:{10 + named}")]
    )
    assert [sentence.startswith("lazy: in step 2 aten.empty") for sentence in sentences] == [True] * len(culprits)
    assert not Repetitions().asks(found, PLAN)


def test_a_mode_that_does_not_repeat_names_its_memory_once(tmp_path: Path) -> None:
    found = pair(tmp_path, {"lazy": IN_1}, "lazy")
    write_unfilled(tmp_path / "evidence" / "lazy-again", [read_of("empty", "aten.empty.default", 0, line=5)])
    looked(found, {"lazy-calls-taped-0": Training(unfilled=[read_of("empty", "aten.empty.default")])})
    culprits, sentences = answered(found)
    assert [culprit.source for culprit in culprits] == [f"{SCRIPT}:12"]
    assert len(sentences) == 1
