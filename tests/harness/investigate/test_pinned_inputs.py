"""The inputs that numdrift pins, and the first steps with other values of them: whether the script depends on them, and
when the question is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Step, Y

from numdrift.harness.investigate.evidence.hash_order import hash_lines
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.judging.judge import judge
from numdrift.harness.investigate.method import investigate_runs
from numdrift.harness.investigate.questions.pinned_inputs import ALL, KIND, ONLY_HASH
from numdrift.harness.launch.batch_plan import script_sha256
from numdrift.harness.records.codec import of_fields
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.results.findings import GENERATORS, HASH, Findings, PairFindings

from .written_evidence import AGAIN, Study, changed, training
from .written_laboratory import PLAN, Training, WritingLaboratory, laboratory_of

OTHER_BATCH = ((("int64", (4,), "other"), Y),)
UNUSED = {"torch": "t", "python": "p", "numpy": "n"}
"""The states in which numdrift leaves the generators of the reference."""

PINS: Mapping[str, Any] = {
    "environment": {"seeded": ["torch", "random", "numpy"], "environment": {"PYTHONHASHSEED": "0"}}
}


def steps(*, shift: str = "", used: Sequence[str] = (), **fields: Any) -> list[Step]:
    """Return two steps. `shift` marks the states of generators that started from another seed and are `used` before
    step 0; a generator that the script has set is in neither."""
    states = {name: f"{state}{shift}{'+' if name in used else ''}" for name, state in UNUSED.items()}
    return changed(training(2, generators=states), 0, **fields)


def event(shift: str = "") -> Mapping[str, Any]:
    return {"event": "unused-generators", "states": {name: f"{state}{shift}" for name, state in UNUSED.items()}}


def judged(
    tmp_path: Path,
    with_all: Sequence[Step] | None,
    with_hash: Sequence[Step] | None = None,
    *,
    reference: Sequence[Step],
    pinned_hash: bool = True,
    control: Sequence[Step] | None = None,
    **manifest: Any,
) -> PairFindings:
    """Judge two equal runs, after experiments with these steps."""
    study = Study(tmp_path / "study")
    runs = [study.run("cpu", reference, **PINS), study.run("same=cpu", reference, **PINS)]
    study.make(AGAIN, control or reference)
    spec = "cpu,env.PYTHONHASHSEED=1" if pinned_hash else "cpu"
    for detail, made, shift in ((ALL, with_all, "'"), (ONLY_HASH, with_hash, "")):
        if made is not None:
            experiment = Experiment(KIND, "cpu", detail=detail)
            study.make(experiment, made, events=[event(shift)], spec=spec, **manifest)
    return judge(runs).pairs[0]


def notes_of(pair: PairFindings) -> list[str]:
    return [note for note in pair.notes if note.startswith("the script ")]


def named(pair: PairFindings) -> list[tuple[str, tuple[str, ...], str]]:
    return [(entry.input, tuple(entry.generators), entry.what) for entry in pair.pinned]


PLAIN = steps(used=("torch",))
"""The first steps of a script that draws from torch's generator and leaves it unseeded."""

SHIFTED = steps(shift="'", used=("torch",))
"""The same steps with another seed of the generators, with equal results."""

SEEDED = steps(used=("torch", "python", "numpy"))
"""The first steps of a script that seeds every generator, so that their states are the same with any seed."""

SHUFFLED = steps(used=("numpy", "python"))
"""The first steps of a script that draws from Python's and NumPy's generators and leaves all of them unseeded."""


def batch(first_steps: Sequence[Step]) -> list[Step]:
    """Return the steps with a different batch."""
    return changed(first_steps, 0, batches=OTHER_BATCH)


def loss(first_steps: Sequence[Step], number: float = 2.0, step: int = 0) -> list[Step]:
    """Return the steps with a different loss, from `step` on."""
    return changed(first_steps, step, losses=(number,))


@pytest.mark.parametrize(
    ("reference", "with_all", "with_hash", "found"),
    [
        # every generator seeded, no set: equal bits with other values
        (SEEDED, SEEDED, None, []),
        # torch's generator is in a different state, but no result depends on it
        (PLAIN, SHIFTED, None, []),
        # the order of a set: the hash seed alone changes the batch, and the other seeds change nothing more
        (SEEDED, batch(SEEDED), batch(SEEDED), [(HASH, (), "batch")]),
        (SEEDED, loss(SEEDED), loss(SEEDED), [(HASH, (), "loss")]),
        (SEEDED, loss(SEEDED, step=1), loss(SEEDED, step=1), [(HASH, (), "loss")]),
        # unseeded generators: the hash seed alone changes nothing; a generator that is unused is not named
        (PLAIN, loss(SHIFTED), PLAIN, [(GENERATORS, ("torch",), "loss")]),
        (
            SHUFFLED,
            steps(shift="'", used=("numpy", "python"), batches=OTHER_BATCH),
            SHUFFLED,
            [(GENERATORS, ("python", "numpy"), "batch")],
        ),
        # drawn from before the script seeds it: the states are equal, the batch is not
        (SEEDED, batch(SEEDED), SEEDED, [(GENERATORS, (), "batch")]),
        # both inputs
        (PLAIN, loss(SHIFTED, 3.0), loss(PLAIN), [(HASH, (), "loss"), (GENERATORS, ("torch",), "loss")]),
        # a computed value differs by chance, without any draw
        (SEEDED, loss(SEEDED), SEEDED, []),
        # one experiment does not separate the two inputs
        (PLAIN, loss(SHIFTED), None, []),
        (SEEDED, None, batch(SEEDED), []),
        # the experiment with the hash seed is one of an earlier investigation
        (SEEDED, SEEDED, batch(SEEDED), []),
    ],
)
def test_an_input_is_named_if_its_value_alone_changes_a_result(
    tmp_path: Path,
    reference: Sequence[Step],
    with_all: Sequence[Step] | None,
    with_hash: Sequence[Step] | None,
    found: list[tuple[str, tuple[str, ...], str]],
) -> None:
    pair = judged(tmp_path, with_all, with_hash, reference=reference)
    assert (pair.verdict, named(pair)) == ("identical", found)
    assert [note for note in pair.notes if "numdrift sets" in note] == notes_of(pair)
    assert len(notes_of(pair)) == len(found)
    assert ("pinned" in of_fields(pair)) == bool(found)  # the field is in the file only if there is something in it
    if found and found[0][0] == HASH:
        assert "PYTHONHASHSEED=1" in notes_of(pair)[0] and pair.pinned[0].run == "cpu-unpinned-hash"


def test_seeds_alone_are_compared_with_the_run_if_the_user_sets_the_hash_seed(tmp_path: Path) -> None:
    pair = judged(tmp_path, loss(SHIFTED), reference=PLAIN, pinned_hash=False)
    assert named(pair) == [(GENERATORS, ("torch",), "loss")]
    assert "torch.manual_seed(0)" in notes_of(pair)[0] and pair.pinned[0].run == "cpu-unpinned-all"


@pytest.mark.parametrize(
    "more",
    [
        {"control": loss(PLAIN, step=1)},  # the reference does not repeat itself
        {"status": "crashed"},
        {"script_sha256": "1"},  # made with the script as it was before
    ],
)
def test_nothing_is_claimed_without_a_sound_experiment(tmp_path: Path, more: Mapping[str, Any]) -> None:
    pair = judged(tmp_path, loss(SHIFTED), PLAIN, reference=PLAIN, **more)
    assert named(pair) == []


def test_a_control_that_differs_later_is_no_objection(tmp_path: Path) -> None:
    reference = [*PLAIN, *training(2)]
    control = changed(reference, 3, losses=(5.0,))
    pair = judged(tmp_path, loss(SHIFTED), reference[:2], reference=reference, control=control)
    assert named(pair) == [(GENERATORS, ("torch",), "loss")]


VOCABULARY = "vocabulary = {word: number for number, word in enumerate(set(words))}\n"


def asked(
    tmp_path: Path,
    unpinned: Mapping[str, Sequence[Step]],
    plan: InvestigationRequest = PLAN,
    spec: str = "cpu",
    text: str = VOCABULARY,
    **manifest: Any,
) -> tuple[WritingLaboratory, Findings]:
    """Investigate two equal runs of a script with this text."""
    script, study = tmp_path / "train.py", Study(tmp_path / "study")
    script.write_text(text)
    events = [{"event": "modules", "files": [str(script)]}]
    fields = {**PINS, "reproducer": str(script), "script_sha256": script_sha256(script), **manifest}
    runs = [study.run(mode, training(), events=events, **fields) for mode in (spec, f"same={spec}")]
    behaviour = Training({}, {run.path.name: training() for run in runs}, unpinned=unpinned)
    with laboratory_of(study, behaviour) as laboratory:
        return laboratory, investigate_runs(runs, plan, laboratory)


def experiments(laboratory: WritingLaboratory) -> list[str]:
    return [name for _, names in laboratory.rounds for name in names if KIND in name]


@pytest.fixture(autouse=True)
def no_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)


def test_equal_bits_need_one_short_run(tmp_path: Path) -> None:
    laboratory, _ = asked(tmp_path, {})
    assert experiments(laboratory) == ["cpu-unpinned-all"]
    plan = laboratory.plans["cpu-unpinned-all"]
    assert (dict(plan.modes[0].env), plan.unseeded_seed, plan.until) == ({"PYTHONHASHSEED": "1"}, 1, 0)


def test_different_bits_need_a_second_run_with_another_hash_seed_alone(tmp_path: Path) -> None:
    laboratory, _ = asked(tmp_path, {ALL: loss(training(2))})
    assert experiments(laboratory) == ["cpu-unpinned-all", "cpu-unpinned-hash"]
    plan = laboratory.plans["cpu-unpinned-hash"]
    assert (dict(plan.modes[0].env), plan.unseeded_seed) == ({"PYTHONHASHSEED": "1"}, 0)


def test_the_lines_with_a_set_are_named(tmp_path: Path) -> None:
    _, findings = asked(tmp_path, {ALL: loss(training(2)), ONLY_HASH: loss(training(2))})
    [pair] = findings.pairs
    [pinned] = pair.pinned
    assert (pinned.input, list(pinned.lines)) == (HASH, [f"{tmp_path / 'train.py'}:1"])
    assert "train.py:1)" in notes_of(pair)[0]


@pytest.mark.parametrize(
    ("spec", "variable", "text"),
    [
        ("cpu", "0", VOCABULARY),  # the user states the hash seed
        ("cpu,env.PYTHONHASHSEED=7", None, VOCABULARY),
        ("cpu", None, "chars = sorted(set(text))\n"),  # no line depends on it: the process need not import torch anew
    ],
)
def test_the_hash_seed_is_left_if_the_user_states_it_or_no_line_depends_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, variable: str | None, text: str
) -> None:
    if variable is not None:
        monkeypatch.setenv("PYTHONHASHSEED", variable)
    laboratory, _ = asked(tmp_path, {ALL: loss(training(2))}, spec=spec, text=text)
    assert experiments(laboratory) == ["cpu-unpinned-all"]
    plan = laboratory.plans["cpu-unpinned-all"]
    assert plan.modes[0].env.get("PYTHONHASHSEED") in (None, "7") and plan.unseeded_seed == 1


@pytest.mark.parametrize(
    ("plan", "spec", "manifest"),
    [
        (replace(PLAN, localize="none"), "cpu", {}),
        (PLAN, "compile", {}),
        (PLAN, "cpu", {"environment": {"seeded": []}}),  # recorded in a running process, which numdrift did not seed
    ],
)
def test_no_run_is_made_if_it_is_not_wanted_or_proves_nothing(
    tmp_path: Path, plan: InvestigationRequest, spec: str, manifest: Mapping[str, Any]
) -> None:
    assert experiments(asked(tmp_path, {}, plan, spec, **manifest)[0]) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("vocabulary = list(set(words))", [1]),
        ("for name in {'a', 'b'}:\n    add(name)", [1]),
        ("names = [name for name in {f(name) for name in words}]", [1]),
        ("shared = x.keys() & y.keys()", [1]),
        ("left = known.difference(seen)", [1]),
        ("x = 1\ntorch.manual_seed(hash('run'))", [2]),
        ("characters = sorted(list(set(text)))", []),
        ("size = len(set(text))", []),
        ("if mode in {'train', 'test'}:\n    pass", []),
        ("if set(a) == set(b):\n    pass", []),
        ("for number in {3, 1, 2}:\n    pass", []),
        ("names = list(dict.fromkeys(words))\nmask = a & b\nnumbers = {'a': 1}", []),
        ("this is no Python", []),
    ],
)
def test_lines_whose_results_depend_on_the_hash_seed(tmp_path: Path, text: str, lines: Sequence[int]) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    events = [{"event": "modules", "files": [str(script), str(tmp_path / "absent.py")]}]
    fields: dict[str, Any] = {"reproducer": str(script), "script_sha256": script_sha256(script)}
    run = Study(tmp_path / "study").run("cpu", training(), events=events, **fields)
    assert hash_lines(run) == [f"{script}:{line}" for line in lines]
    script.write_text(f"{text}\n")  # the script has changed since: its lines say nothing about the run
    assert hash_lines(run) == []
