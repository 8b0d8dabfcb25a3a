"""The inputs that numdrift pins, and the first steps with other values of them: whether the script depends on them, and
when the question is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Step, Y

from numdrift.harness.investigate.judging.judge import judge
from numdrift.harness.investigate.method import investigate_runs
from numdrift.harness.investigate.questions.pinned_inputs import ALL, KIND, ONLY_HASH
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.results.findings import GENERATORS, HASH, PairFindings

from .written_evidence import AGAIN, Study, changed, training
from .written_laboratory import PLAN, Training, WritingLaboratory, laboratory_of

OTHER_BATCH = ((("int64", (4,), "other"), Y),)
UNUSED = {"torch": "t", "python": "p", "numpy": "n"}
"""The states in which numdrift leaves the generators of the reference."""

PINS = {"environment": {"seeded": ["torch", "random", "numpy"], "environment": {"PYTHONHASHSEED": "0"}}}


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


def asked(
    tmp_path: Path, unpinned: Mapping[str, Sequence[Step]], plan: Any = PLAN, spec: str = "cpu", **manifest: Any
) -> WritingLaboratory:
    """Investigate two equal runs."""
    study = Study(tmp_path / "study")
    runs = [study.run(mode, training(), **{**PINS, **manifest}) for mode in (spec, f"same={spec}")]
    behaviour = Training({}, {run.path.name: training() for run in runs}, unpinned=unpinned)
    with laboratory_of(study, behaviour) as laboratory:
        investigate_runs(runs, plan, laboratory)
    return laboratory


def experiments(laboratory: WritingLaboratory) -> list[str]:
    return [name for _, names in laboratory.rounds for name in names if KIND in name]


@pytest.fixture(autouse=True)
def no_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)


def test_equal_bits_need_one_short_run(tmp_path: Path) -> None:
    laboratory = asked(tmp_path, {})
    assert experiments(laboratory) == ["cpu-unpinned-all"]
    plan = laboratory.plans["cpu-unpinned-all"]
    assert (dict(plan.modes[0].env), plan.unseeded_seed, plan.until) == ({"PYTHONHASHSEED": "1"}, 1, 0)


def test_different_bits_need_a_second_run_with_another_hash_seed_alone(tmp_path: Path) -> None:
    laboratory = asked(tmp_path, {ALL: loss(training(2))})
    assert experiments(laboratory) == ["cpu-unpinned-all", "cpu-unpinned-hash"]
    plan = laboratory.plans["cpu-unpinned-hash"]
    assert (dict(plan.modes[0].env), plan.unseeded_seed) == ({"PYTHONHASHSEED": "1"}, 0)


@pytest.mark.parametrize("spec", ["cpu", "cpu,env.PYTHONHASHSEED=7"])
def test_a_hash_seed_of_the_user_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    if spec == "cpu":
        monkeypatch.setenv("PYTHONHASHSEED", "0")
    laboratory = asked(tmp_path, {ALL: loss(training(2))}, spec=spec)
    assert experiments(laboratory) == ["cpu-unpinned-all"]
    plan = laboratory.plans["cpu-unpinned-all"]
    assert plan.modes[0].env.get("PYTHONHASHSEED") in (None, "7") and plan.unseeded_seed == 1


@pytest.mark.parametrize(
    ("plan", "spec", "manifest"),
    [
        (replace(PLAN, localize="none"), "cpu", {}),
        (PLAN, "compile", {}),
        (PLAN, "cpu", {"environment": {"seeded": []}}),  # recorded in a running process, which numdrift did not seed
        (PLAN, "cpu", {"world_size": 2}),
    ],
)
def test_no_run_is_made_if_it_is_not_wanted_or_proves_nothing(
    tmp_path: Path, plan: Any, spec: str, manifest: Mapping[str, Any]
) -> None:
    assert experiments(asked(tmp_path, {}, plan, spec, **manifest)) == []
