"""The environment variables and threads with which a recorded run is repeated: those of the run, not of the machine
that repeats it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from ...records.modes.mode_spec import parse_mode
from ...records.run.surroundings import NUMBERS, cores
from ...runs.recorded_run import RecordedRun

OF_ONE_RUN = ("DEVICE", "LTC_SAVE_TENSORS", "TORCHELASTIC_", "TORCHINDUCTOR_CACHE_DIR", "OMP_WAIT_POLICY")
"""Prefixes of the variables in NUMBERS that are not restored: numdrift sets them for each process itself, or they
change no number."""


def variables_of(run: RecordedRun) -> dict[str, str] | None:
    """Return the environment variables of this process, with those that can change numbers replaced by the run's; None
    if the run recorded none."""
    recorded = run.manifest.environment.get("environment")
    if not isinstance(recorded, Mapping):
        return None
    spec = parse_mode(run.manifest.spec)
    stated = {*dict(spec.env), *(("OMP_NUM_THREADS", "MKL_NUM_THREADS") if spec.threads is not None else ())}
    own = {name: value for name, value in os.environ.items() if not _is_of_numbers(name)}
    saved = {str(name): str(value) for name, value in recorded.items() if _is_of_numbers(name) and name not in stated}
    threads, then = run.manifest.environment.get("threads"), run.manifest.environment.get("cores")
    # Unless a number of threads is set, torch takes as many as there are cores.
    if then not in (None, cores()) and spec.threads is None and run.manifest.world_size == 1:
        saved = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} | saved
    return own | saved


def not_restored(run: RecordedRun) -> list[str]:
    """Return a sentence for each difference between the run's environment and this one that can change bits."""
    then, spec = run.manifest.environment, parse_mode(run.manifest.spec)
    if not then or spec.python is not None:
        return []
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    current = {"torch": torch, "python": platform.python_version()}
    sentences = [
        f"{run.manifest.label} was recorded with {name} {then[name]}, but is repeated with {now}: its bits may differ"
        for name, now in current.items()
        # torch itself says `2.13.0+cpu`, its package `2.13.0`.
        if now and name in then and str(then[name]).partition("+")[0] != now.partition("+")[0]
    ]
    if then.get("cores") not in (None, cores()):
        number, threads = then["cores"], then.get("threads")
        sentences.append(
            f"{run.manifest.label} was recorded on {number} core{'' if number == 1 else 's'}, but this machine has "
            f"{cores()}: it is repeated with its {threads} thread{'' if threads == 1 else 's'}"
        )
    return sentences


def _is_of_numbers(name: str) -> bool:
    return name.startswith(NUMBERS) and not name.startswith(OF_ONE_RUN)
