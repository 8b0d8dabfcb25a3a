"""Measurements on the reference's tapes by clean processes, beside the other experiments: noise, and exact values.

noise_beside      while the reference trains once more, its tapes are replayed with random rounding and in double
complete_noise    the run's worker measures the steps that a clean process cannot replay
referee_beside    the values in double of tapes that have none yet
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ...drift.step_noise import Noise, read_noise
from ...errors import JournalError
from ...launch.guest_process import Guest, GuestProcess, environment, interpreter, preloadable
from ...records.modes.mode_spec import ModeSpec
from ...records.results.experiment import Experiment
from ...records.run.run_request import NOISE_REPLAYS
from ...records.run.step_files import write_noise_record
from ...records.run.surroundings import cores
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import noise_path, read_noise_record, tape_path
from ..evidence.pair_evidence import EvidenceFolder
from ..evidence.pair_scores import spec_of
from .chosen_steps import ChosenSteps, bytes_of_state
from .laboratory import Laboratory

REFEREE = "numdrift.harness.recorder.referee_process"
BESIDE_TRAINING = "numdrift.harness.tape.replaying.beside_training"

LONGEST = 600.0
"""The seconds that the referee may take, and that a measurement of noise may take after its training run has ended."""

LOOK_SECONDS = 0.02

LARGE = 64 << 20
"""With this many bytes of parameters and buffers or more, the process of the training run itself measures a step as
soon as the step has ended. A second copy of all values costs memory, and such large ops use all processors well."""


def is_measured_beside(reference: RecordedRun) -> bool:
    """Check whether a clean process beside the training run may measure the reference's steps.

    It may if the run is one process on the CPU, with a small model and this interpreter. A compiled step is excluded:
    it is replayed op by op, and the clean process could not tell whether the kernels are the step's own.
    """
    spec = spec_of(reference)
    is_plain = spec.base == "cpu" and spec.device in (None, "cpu") and spec.python is None
    return is_plain and reference.manifest.world_size == 1 and bytes_of_state(reference) < LARGE


@contextmanager
def noise_beside(
    reference: RecordedRun, again: Experiment, chosen: ChosenSteps, laboratory: Laboratory
) -> Iterator[None]:
    """Measure the chosen steps of the reference while the caller trains the experiment `again` in this context.

    Each core gets a process, with the steps that fall to it: the training's cores are free once it has ended.
    On exit, wait until all steps that have a tape by then are measured."""
    folder = EvidenceFolder.of(reference)
    run, ended = folder.path / again.name, folder.path / "noise.ended"
    lacking = [step for step in chosen.taped if (noise := recorded_noise(run, step)) is None or _is_open(noise)]
    if not lacking or not is_measured_beside(reference):
        yield
        return
    count = min(len(lacking), cores())
    processes: list[GuestProcess] = []
    try:
        ended.unlink(missing_ok=True)
        for number in range(count):
            request = {
                "tapes": str((run / "tapes").absolute()),
                "steps": lacking[number::count],
                "replays": NOISE_REPLAYS,
                "threads": 1,  # the process runs beside the training runs
                "ended": str(ended.absolute()),
            }
            name = f"noise-{number}"
            processes.append(_started(folder, name, request, spec_of(reference), BESIDE_TRAINING, laboratory))
    except OSError as error:
        laboratory.progress.say(f"no noise is measured while {reference.manifest.label} trains: {error}")
    try:
        yield
        with suppress(OSError, subprocess.TimeoutExpired):  # the worker will measure the missing steps
            ended.touch()
            until = time.monotonic() + LONGEST
            for process in processes:
                process.wait(max(0.0, until - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        ended.unlink(missing_ok=True)


def complete_noise(
    reference: RecordedRun, again: Experiment, chosen: ChosenSteps, laboratory: Laboratory, *, repeats: bool
) -> None:
    """Have the run's worker, whose kernels are the step's own, measure the steps that a clean process could not."""
    run = EvidenceFolder.of(reference).path / again.name
    for step in chosen.taped:
        if not repeats:
            settle_tape(laboratory, run, step, NOISE_REPLAYS)
        else:
            measure_tape(laboratory, run, step)


def measure_tape(laboratory: Laboratory, run: Path, step: int) -> None:
    """Have a run's worker measure the noise of a taped step, unless it is measured or cannot be."""
    noise = recorded_noise(run, step)
    if (noise is None or _is_open(noise)) and tape_path(run, step).exists():
        measured_by_holder(laboratory, run, step)


def settle_tape(laboratory: Laboratory, run: Path, step: int, replays: int = 0) -> None:
    """Have a run's worker look for the calls of a taped step that do not repeat, and settle these calls."""
    noise = recorded_noise(run, step)
    has_replays = noise is not None and noise.settled and (noise.replays or not replays)
    if tape_path(run, step).exists() and not has_replays:
        measured_by_holder(laboratory, run, step, replays=replays, settles=True)


def poison_tape(laboratory: Laboratory, run: Path, step: int) -> None:
    """Have a run's worker look for reads of memory that no op has written, in a taped step, and note them."""
    if not tape_path(run, step).exists():
        return
    if recorded_noise(run, step) is None:
        measured_by_holder(laboratory, run, step)
    record = read_noise_record(run, step)
    if record is None or record.get("unwritten") is not None:
        return
    answer = laboratory.workers.ask(run, {"request": "unwritten", "step": step})
    if answer is not None:
        write_noise_record(noise_path(run, step), {**record, "unwritten": answer["unwritten"]})


def measured_by_holder(
    laboratory: Laboratory,
    run: Path,
    step: int,
    edge_replays: int = 0,
    *,
    replays: int = NOISE_REPLAYS,
    settles: bool = False,
) -> bool:
    """Have the run's worker replay a step; return whether a worker answered.

    If only the replays with stronger rounding are missing, the others are not repeated.
    """
    noise_so_far = recorded_noise(run, step) if edge_replays and not settles else None
    adds = noise_so_far is not None and noise_so_far.equal and noise_so_far.replays > 0
    request = {"request": "noise", "step": step, "replays": 0 if adds else replays, "edge": edge_replays}
    answer = laboratory.workers.ask(run, request | {"settles": settles})
    if answer is None:
        return False
    noise = answer["noise"]
    if adds:
        before = dict(read_noise_record(run, step) or {})
        reaches = {name: {"reach": found["reach"]} for name, found in noise["tensors"].items()}
        tensors = {name: {**found, **reaches.get(name, {})} for name, found in before["tensors"].items()}
        noise = {**before, "tensors": tensors, "edge": noise["edge"]}
    write_noise_record(noise_path(run, step), noise)
    return True


def recorded_noise(run: Path, step: int) -> Noise | None:
    """Return the recorded noise of a step; None if there is none or it cannot be read."""
    try:
        return read_noise(run, step)
    except JournalError:
        return None


def _is_open(noise: Noise) -> bool:
    """Check whether the tape replays bit for bit, but has not been replayed with random rounding yet."""
    return noise.equal and not noise.replays


def run_referee(
    folder: EvidenceFolder, runs: Sequence[RecordedRun], laboratory: Laboratory, given_up: threading.Event | None = None
) -> None:
    """Write exact values beside each tape that has a measured noise but no exact values yet: a clean process replays
    the tape in double.

    A failure is reported, and the verdict does without the values. The replay ends early once `given_up` is set.
    """
    tapes = [tape for run in runs for tape in sorted((run.path / "tapes").glob("tape-*.safetensors"))]
    missing = [
        tape
        for tape in tapes
        if tape.with_name(f"{tape.stem.replace('tape-', 'noise-', 1)}.json").exists()
        and not tape.with_name(tape.name.replace("tape-", "exact-", 1)).exists()
    ]
    if not missing:
        return
    until = time.monotonic() + LONGEST
    try:
        request = {"tapes": [str(tape.absolute()) for tape in missing], "kernels": []}
        # The process runs in the mode of the tapes: an accelerator executes a step in double in milliseconds.
        process = _started(folder, "referee", request, spec_of(runs[0]), REFEREE, laboratory)
        while (code := process.poll()) is None:
            if time.monotonic() > until or (given_up is not None and given_up.is_set()):
                process.kill()
            time.sleep(LOOK_SECONDS)
    except OSError as error:
        laboratory.progress.say(f"the fp64 referee returned no result: {error}")
        return
    if given_up is not None and given_up.is_set():
        return
    if code and time.monotonic() > until:
        laboratory.progress.say(f"the fp64 referee returned no result: it was stopped after {LONGEST:.0f} s")
    elif code:
        log = _log(folder, "referee")
        reason = (log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        laboratory.progress.say(f"the fp64 referee failed (exit code {code}): {reason}; see {log}")


@contextmanager
def referee_beside(folder: EvidenceFolder, runs: Sequence[RecordedRun], laboratory: Laboratory) -> Iterator[None]:
    """Run the referee while this context is active. On exit, wait for the referee; after an error, end it.

    On an accelerator, the referee runs before the context: the device's memory does not suffice for several processes
    at once, and a step in double takes milliseconds.
    """
    if runs and spec_of(runs[0]).accelerator is not None:
        run_referee(folder, runs, laboratory)
        yield
        return
    given_up = threading.Event()
    beside = threading.Thread(target=run_referee, args=(folder, runs, laboratory, given_up))
    beside.start()
    try:
        yield
    except BaseException:
        given_up.set()  # the process has its own session, which Ctrl-C does not reach
        raise
    finally:
        beside.join()


def _log(folder: EvidenceFolder, name: str) -> Path:
    return folder.path / f"{name}.log"


def _started(
    folder: EvidenceFolder,
    name: str,
    request: Mapping[str, object],
    spec: ModeSpec,
    module: str,
    laboratory: Laboratory,
) -> GuestProcess:
    """Start a clean process that executes the `request` in the environment of this mode. Raises OSError."""
    folder.path.mkdir(parents=True, exist_ok=True)
    config = folder.path / f"{name}.json"
    config.write_text(json.dumps(request))
    guest = Guest(config, environment(spec, os.environ), interpreter(spec), module, preloadable(spec))
    with _log(folder, name).open("wb") as written:
        return laboratory.processes.start(guest, written.fileno(), written.fileno())
