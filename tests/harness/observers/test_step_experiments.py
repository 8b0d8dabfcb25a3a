"""States, outcomes and steps that start from another run's state, in the modes as a user runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.harness.drift.recordings import a_manifest
from tests.harness.recorder.trainings import ALL, STEPS, Ran, differing, plain, run, write_script

from numdrift.harness.drift.recorded_drift import differences, own_steps
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.runs.recorded_run import RecordedRun

MODES = {
    "cpu": ("cpu", "cpu", []),
    "compile": ("compile", "cpu", ["--compile"]),
    "lazy": ("lazy", "lazy", []),
    "lazy-phase": ("lazy,mark_step=phase", "lazy", []),
}
SLOW = ("compile", "lazy", "lazy-phase")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_script(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module", params=[pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW)) for m in MODES])
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def free(script: Path, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run that keeps everything of every step."""
    done = run(script, tmp_path_factory.mktemp(mode) / "free", MODES[mode][0], states=ALL, outcomes=ALL)
    assert done.exit_code == 0, (done.path / "stderr.log").read_text()
    return done


def test_keeping_states_and_outcomes_changes_no_bit(free: Ran, mode: str, script: Path) -> None:
    _, device, flags = MODES[mode]
    assert free.printed == plain(script, device, *flags)
    assert sorted(free.outcomes) == list(range(STEPS))
    assert sorted(free.states)[:STEPS] == list(range(STEPS))


def test_each_step_from_its_own_state_gives_what_it_gave(free: Ran, mode: str, script: Path, tmp_path: Path) -> None:
    # when the steps start from the states, in a training that is disturbed after step 1 and after step 4
    forced = [
        run(
            script,
            tmp_path / f"forced-{disturbed}",
            f"{MODES[mode][0]},env.DISTURBED={disturbed}",
            outcomes=ALL,
            resync=str(free.path / "states"),
        )
        for disturbed in (-1, 4)
    ]
    # then every step gives the same bits, but for the one that was disturbed after its state was loaded
    assert forced[0].printed == free.printed
    for one, spared in zip(forced, (-1, 5), strict=True):
        assert one.exit_code == 0 and sorted(one.outcomes) == list(range(STEPS))
        for step, outcome in one.outcomes.items():
            assert bool(differing(outcome, free.outcomes[step])) == (step == spared), step
        resynced = [(event["step"], event["missing"]) for event in one.journal.events("resynced")]
        assert [(step, missing) for step, missing in resynced if missing] == []
        assert [step for step, _ in resynced][:STEPS] == list(range(STEPS))
    # and without the states the disturbance goes on
    alone = run(script, tmp_path / "alone", f"{MODES[mode][0]},env.DISTURBED=4", outcomes=ALL)
    assert [bool(differing(one, free.outcomes[step])) for step, one in alone.outcomes.items()] == [
        step > 4 for step in range(STEPS)
    ]


def test_a_training_goes_on_as_itself_after_steps_in_another_state(
    free: Ran, mode: str, script: Path, tmp_path: Path
) -> None:
    # given another training that comes apart from this one after step 1, and then takes the same steps
    other = run(script, tmp_path / "other", f"{MODES[mode][0]},env.DISTURBED=1", states=ALL, outcomes=ALL)
    assert differing(other.outcomes[4], free.outcomes[4]) and differing(other.outcomes[7], free.outcomes[7])
    # when this one takes some steps in the other's states, and has its own back afterwards
    chosen = StepSelection.of([1, 4, 7])
    theirs, own = (str(one.path / "states") for one in (other, free))
    ran = run(script, tmp_path / "ran", MODES[mode][0], outcomes=chosen, resync=theirs, rejoin=own)
    assert ran.exit_code == 0
    # then these steps are the other's, and in step 1 nothing had to be put in place
    assert {step: differing(one, other.outcomes[step]) for step, one in ran.outcomes.items()} == {1: [], 4: [], 7: []}
    resynced = {event["step"]: event.get("equal", False) for event in ran.journal.events("resynced")}
    assert resynced == {1: True, 4: False, 7: False}
    # and all others its own, bit for bit
    before, after = (RecordedRun(one.path, a_manifest("cpu")) for one in (free, ran))
    assert own_steps(after) == set(range(STEPS)) - {4, 7}
    assert list(differences(before, after)) == []


@pytest.mark.parametrize("until", [0, 4, STEPS - 1])
def test_a_run_that_needs_no_later_step_ends_with_the_step_after(
    free: Ran, mode: str, script: Path, tmp_path: Path, until: int
) -> None:
    steps = StepSelection(((until, until),))
    ended = run(script, tmp_path / "ended", MODES[mode][0], outcomes=steps, until=until)
    assert ended.exit_code == 0
    assert len(ended.journal.steps) == min(until + 2, STEPS)
    assert ended.journal.end is not None and ended.journal.end["status"] == "complete"
    assert sorted(ended.outcomes) == [until]
    assert not differing(ended.outcomes[until], free.outcomes[until])


def test_files_hold_what_the_script_itself_sees(script: Path, tmp_path: Path) -> None:
    # when
    saved = tmp_path / "kept.npz"
    ran = run(script, tmp_path / "run", "cpu", ("--keep", str(saved)), states=ALL, outcomes=ALL)
    # then
    assert ran.exit_code == 0
    prefixes = {0: "", 1: "model.", 2: "model2."}
    found = 0
    for key, value in np.load(saved).items():
        number, what, name = key.split(" ", 2)
        step = int(number)
        file = ran.states[step] if what == "begin" else ran.outcomes[step]
        tensors, prefix = file.tensors, prefixes[step // 3]
        if what == "gradient":
            which, _, name = name.partition(" ")
            kept = tensors[f"gradient {which} {prefix}{name}"]
        elif what == "begin" and step % 3 == 0 and step:
            continue  # a model that is called for the first time within the step
        else:
            plain_name = prefix + name
            kind = "parameter" if f"parameter {plain_name}" in tensors else "buffer"
            kept = tensors[f"{kind} {plain_name}"]
        assert kept.tobytes() == value.tobytes(), key
        found += 1
    assert found > 100


def test_losses_are_numbered_through_the_step(script: Path, tmp_path: Path) -> None:
    ran = run(script, tmp_path / "run", "cpu", outcomes=StepSelection(((7, 7),)))
    (outcome,) = ran.outcomes.values()
    printed = next(line for line in ran.printed.splitlines() if line.startswith("7 ")).split()[1:]
    assert [float(outcome.tensors[f"loss {n}"]).hex() for n in (0, 1)] == printed
    assert "loss 2" not in outcome.tensors
    assert {name.split()[1] for name in outcome.tensors if name.startswith("gradient ")} == {"0", "1"}
    assert "state model2.first.weight.momentum_buffer" in outcome.tensors
    assert outcome.facts == {"schema": 1, "step": 7}


def test_perturbed_parameters_are_one_step_of_the_grid_away(script: Path, tmp_path: Path) -> None:
    # given
    reference = run(script, tmp_path / "reference", "cpu", states=StepSelection(((1, 2),)))
    # when step 2 starts from the moved state
    chosen = StepSelection(((2, 2),))
    moved = run(
        script,
        tmp_path / "moved",
        "cpu",
        states=chosen,
        outcomes=chosen,
        resync=str(reference.path / "states"),
        perturb=3,
    )
    # then
    state, other = reference.states[2], moved.states[2]
    assert sorted(moved.states) == [2]
    assert [event["step"] for event in moved.journal.events("resynced")] == [2]
    changed = differing(state, other)
    assert changed and all(name.startswith("parameter ") for name in changed)
    for name in changed:
        a, b = state.tensors[name], other.tensors[name]
        assert np.all((b == np.nextafter(a, np.inf)) | (b == np.nextafter(a, -np.inf)) | (a == 0)), name


def test_a_reference_without_states_is_refused(script: Path, tmp_path: Path) -> None:
    ran = run(script, tmp_path / "run", "cpu", resync=str(tmp_path / "nothing"))
    assert ran.exit_code == 2
    assert "--states" in ran.journal.events("end")[0]["message"]


def test_a_damaged_state_ends_the_experiment_and_not_the_training(script: Path, tmp_path: Path) -> None:
    # given
    reference = run(script, tmp_path / "reference", "cpu", states=StepSelection(((0, 2),)))
    (reference.path / "states" / "state-000001.safetensors").write_bytes(b"nothing")
    # when
    ran = run(script, tmp_path / "run", "cpu", outcomes=ALL, resync=str(reference.path / "states"))
    # then the outcome of what did start from a state is there, and no other
    assert ran.exit_code == 0 and ran.printed == reference.printed
    assert sorted(ran.outcomes) == [0]
    assert len(ran.journal.steps) == STEPS
    (notice,) = ran.notices
    assert "state-000001.safetensors" in notice and "from here on" in notice
