"""`numdrift investigate`: controls, set-up, one-step verdicts and the exit codes, on trainings of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift

KINDS = ROOT / "tests" / "e2e" / "scripts" / "kinds.py"
REPRODUCERS = ROOT / "reproducers"


Judge = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def judge(numdrift: Numdrift, tmp_path: Path) -> Judge:
    """Investigate a kind of training without a fault and with each of these; gives the pairs by fault, `same` without."""

    def run(kind: str, *faults: str, code: int) -> dict[str, dict[str, Any]]:
        modes = ["--mode", "cpu", "--mode", "same=cpu"]
        modes += [word for fault in faults for word in ("--mode", f"{fault}=cpu,env.FAULT={fault}")]
        options = ("--name", "i", "--localize", "none", "--json", "found.json")
        done = numdrift("investigate", KINDS, *modes, *options, "--", "--kind", kind)
        assert done.stderr.count("Traceback") == 0, done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        found = json.loads((tmp_path / "found.json").read_text())
        assert found == json.loads((tmp_path / "runs" / "i" / "investigation.json").read_text())
        return {pair["b"]: pair for pair in found["pairs"]}

    return run


def check_same_and_loss(pairs: Mapping[str, Mapping[str, Any]]) -> None:
    """A mode without a fault is identical, and one whose loss is another from step 3 on is not."""
    same, loss = pairs["same"], pairs["loss"]
    assert same["verdict"] == "identical"
    assert loss["verdict"] == "beyond-rounding"
    assert loss["first_differing_step"] == loss["first_significant_step"] == 3
    assert loss["score"] > loss["threshold"] >= 16


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        *("sparse", "accumulation"),
        *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("unused", "scheduled", "frozen")),
    ],
)
def test_a_mode_without_a_fault_is_identical_and_one_with_a_fault_is_not(kind: str, judge: Judge) -> None:
    check_same_and_loss(judge(kind, "loss", code=1))


FAULTS = {
    "init": ("different-setup", ["embedding.weight", "starts from different values"]),
    "lr": ("different-setup", ["lr", "0.005"]),
    "batch": ("different-setup", ["batch of step 3"]),
    "nan": ("nonfinite", ["step 3"]),  # dated
    "crash": ("failed", ["planted"]),  # a result as well
}
"""Of each fault of a training with tied weights: the verdict, and what is said of it."""


@pytest.mark.slow
def test_each_fault_is_named_beside_others(judge: Judge) -> None:
    pairs = judge("tied", "loss", *FAULTS, code=3)
    check_same_and_loss(pairs)
    for fault, (verdict, words) in FAULTS.items():
        assert pairs[fault]["verdict"] == verdict
        text = " ".join(pairs[fault]["text"])
        assert all(word in text for word in words), text
        assert verdict != "different-setup" or pairs[fault]["culprits"][0]["kind"] == "setup"


@pytest.mark.slow
def test_a_generator_that_is_drawn_from_once_more_is_named(judge: Judge) -> None:
    pairs = judge("generators", "loss", "python", code=1)
    check_same_and_loss(pairs)
    assert pairs["python"]["verdict"] == "different-setup"
    assert "Python's generator" in " ".join(pairs["python"]["text"])


@pytest.mark.slow
def test_what_does_not_repeat_is_nondeterministic_and_the_remedy_is_said(judge: Judge) -> None:
    pair = judge("unseeded", code=1)["same"]
    assert pair["verdict"] == "nondeterministic"
    assert "batch" in " ".join(pair["text"])


@pytest.mark.slow
def test_two_trainings_of_each_mode_say_all_and_leave_no_process(numdrift: Numdrift, tmp_path: Path) -> None:
    # when the faulty kernel is the reference's own
    modes = ("--mode", "bad=cpu,kernel.tanh_backward=bf16", "--mode", "cpu")
    given = ("--name", "i", "--no-confirm", "--no-scripts", "--", "--epochs", "9")
    done = numdrift("investigate", REPRODUCERS / "sam_tanh.py", *modes, *given)
    assert done.returncode == 1, done.stderr
    # then two trainings of each have said what it is, to the proof, and a short one that nothing depends on other seeds
    found = json.loads((tmp_path / "runs" / "i" / "investigation.json").read_text())
    assert (found["training_runs"], found["steps_trained"]) == (5, 38)
    (pair,) = found["pairs"]
    (culprit,) = pair["culprits"]
    assert (culprit["op"], culprit["status"], pair["first_significant_step"]) == ("aten.tanh_backward", "culprit", 0)
    # and the verdict was told before the causes were looked for
    assert done.stderr.index("cpu against bad: beyond-rounding") < done.stderr.index("localizing step 0")
    # and of the processes that were held none is left
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == tmp_path:
                left.append((process / "cmdline").read_text())
    assert not left
    # when it is asked about another step, processes are made again for that step alone
    again = numdrift("localize", "runs/i/bad", "runs/i/cpu", "--step", "4", "--json", "-")
    assert again.returncode == 1, again.stderr
    pair = json.loads(again.stdout)["pairs"][0]
    assert [one["op"] for one in pair["culprits"]] == ["aten.tanh_backward"]
    localized = tmp_path / "runs" / "i" / "evidence" / "cpu-localized-bad-000004" / "localization.json"
    assert all(json.loads(localized.read_text())["controls"].values())


@pytest.mark.slow
def test_recorded_runs_are_compared_and_then_investigated(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    # given two modes that differ by rounding, recorded without experiments
    assert numdrift("run", tiny, "--modes", "cpu,compile", "--name", "r").returncode == 0
    # when they are compared, then it is undecided, and it is said what decides
    compared = numdrift("compare", "runs/r")
    assert compared.returncode == 1
    assert "numdrift investigate runs/r" in compared.stdout
    # when they are investigated, then the recorded runs are used
    done = numdrift("investigate", "runs/r", "--localize", "none", "--json", "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["pairs"][0]["verdict"] in ("rounding", "identical"), done.stdout
    assert found["runs"]["cpu"]["steps"] == 10
    # and a damaged outcome is named, not a traceback
    outcome = next((tmp_path / "runs/r/evidence/compile-from-cpu/outcomes").glob("*.safetensors"))
    outcome.write_bytes(outcome.read_bytes()[:100])
    broken = numdrift("compare", "runs/r")
    assert "Traceback" not in broken.stderr
    assert outcome.name in broken.stdout + broken.stderr


@pytest.mark.slow
def test_a_resync_starts_steps_from_the_reference(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    # given a reference that kept its states, and one that did not
    assert numdrift("run", tiny, "--modes", "cpu", "--states", "0,5", "--name", "a").returncode == 0
    assert numdrift("run", tiny, "--modes", "cpu", "--name", "none").returncode == 0
    # when another mode is started from them
    done = numdrift("run", tiny, "--modes", "compile", "--resync", "runs/a/cpu", "--steps", "0,5", "--name", "b")
    assert done.returncode == 0, done.stderr
    kept = sorted(path.name for path in (tmp_path / "runs/b/compile/outcomes").iterdir())
    assert kept == ["outcome-000000.safetensors", "outcome-000005.safetensors"]
    # and without states the remedy is said
    refused = numdrift("run", tiny, "--modes", "compile", "--resync", "runs/none/cpu", "--name", "c")
    assert refused.returncode == 2
    assert "--states" in refused.stderr


@pytest.mark.slow
def test_a_run_recorded_without_parameters_names_the_flag(numdrift: Numdrift, tiny: Path) -> None:
    assert numdrift("run", tiny, "--modes", "cpu,lazy", "--record", "losses", "--name", "r").returncode == 0
    refused = numdrift("investigate", "runs/r")
    assert refused.returncode == 2
    assert "--record params" in refused.stderr


@pytest.mark.slow
def test_whole_trainings_on_request(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    # when a perturbed training and three seeds are asked for
    done = numdrift(
        *("investigate", tiny, "--modes", "cpu,compile", "--envelope", "1", "--seeds", "2", "--name", "i"),
        *("--localize", "none"),
        *("--json", "found.json"),
    )
    assert done.returncode == 0, done.stderr
    pair = json.loads((tmp_path / "found.json").read_text())["pairs"][0]
    # then the curve has an envelope, the lag a reservation, and both can be drawn and removed
    assert pair["curve"]["members"] == 1
    assert len(pair["curve"]["envelope"]) == 10
    assert pair["lag"]["significant"] is False
    assert "one-ULP change" in " ".join(pair["text"])
    drawn = numdrift("plot", "runs/i", "--what", "envelope")
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "runs/i/cpu_vs_compile_envelope.png").stat().st_size > 10_000
    assert numdrift("runs", "rm", "i", "--yes").returncode == 0
    assert not (tmp_path / "runs/i").exists()


@pytest.mark.slow
def test_what_has_no_such_steps_is_refused(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    # given a script without a step
    script = tmp_path / "nothing.py"
    script.write_text("print('no training')\n")
    done = numdrift("investigate", script, "--modes", "cpu,compile", "--quiet")
    # then nothing is decided, and what is missing is said
    assert done.returncode == 1
    assert "cpu recorded no step, so there is nothing to compare" in done.stderr
    assert "Traceback" not in done.stderr
    # and steps that the training does not have are refused
    refused = numdrift("investigate", tiny, "--modes", "cpu,compile", "--steps", "90")
    assert refused.returncode == 2
    assert "steps 0 to 9" in refused.stderr


@pytest.mark.slow
def test_an_interrupted_run_is_made_again_and_a_failed_one_is_not(
    numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    asked = ("investigate", tiny, "--mode", "cpu", "--mode", "other=cpu", "--name", "t", "--localize", "none")
    assert numdrift(*asked).returncode == 0
    manifest = tmp_path / "runs" / "t" / "other" / "run.json"
    whole = json.loads(manifest.read_text())

    manifest.write_text(json.dumps(whole | {"status": "killed", "message": "interrupted", "steps": 1}))
    again = numdrift(*asked)
    assert again.returncode == 0, again.stderr
    assert "runs/t/other was interrupted and is run again" in again.stderr
    assert json.loads(manifest.read_text())["status"] == "complete"

    manifest.write_text(json.dumps(whole | {"status": "crashed", "message": "ValueError"}))
    refused = numdrift(*asked)
    assert refused.returncode == 2
    assert "choose another --name" in refused.stderr.splitlines()[-1]
    assert json.loads(manifest.read_text())["status"] == "crashed"


@pytest.mark.slow
def test_the_stage_of_the_compiler_that_makes_the_drift_is_told_on_request(numdrift: Numdrift, tmp_path: Path) -> None:
    # when the founding training is investigated with the compiler's stages and settings
    done = numdrift(
        *("investigate", REPRODUCERS / "sam_tanh.py", "--modes", "cpu,compile", "--name", "k", "--knobs"),
        *("--no-scripts", "--no-confirm", "--", "--epochs", "2"),
    )
    # then capture alone changes no bit, the whole compiler does, and plain runs of the stages say the same
    assert done.returncode == 0, done.stdout + done.stderr
    (pair,) = json.loads((tmp_path / "runs" / "k" / "investigation.json").read_text())["pairs"]
    compiler = pair["compiler"]
    assert compiler["stages"]["eager"] == 0 < compiler["score"]
    assert set(compiler["settings"]) >= {"contract=fast", "inductor.cpp.simdlen=1"}
    assert "by the compiler's stages: " in done.stdout
    # by the process that held the step: each mode was trained twice, and the reference briefly with other seeds
    assert json.loads((tmp_path / "runs" / "k" / "investigation.json").read_text())["training_runs"] == 5
    plain = numdrift(
        *("run", REPRODUCERS / "sam_tanh.py", "--mode", "cpu", "--mode", "e=compile,backend=eager"),
        *("--name", "plain", "--", "--epochs", "1"),
    )
    assert plain.returncode == 0, plain.stderr
    cpu, captured = (load_run(tmp_path / "runs" / "plain" / mode).journal.values(0) for mode in ("cpu", "e"))
    assert all(captured[name].tobytes() == cpu[name].tobytes() for name in cpu)
