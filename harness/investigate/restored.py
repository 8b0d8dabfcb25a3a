"""What a recorded run is repeated with: the variables and threads that it had, wherever that is asked for."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from ..records.mode_spec import parse_mode
from ..records.surroundings import NUMBERS, cores
from ..runs.recorded_run import RecordedRun

OF_ONE_RUN = ("DEVICE", "LTC_SAVE_TENSORS", "TORCHELASTIC_", "TORCHINDUCTOR_CACHE_DIR", "OMP_WAIT_POLICY")
"""Of these, what numdrift gives each process itself, and what changes no number."""


def variables_of(run: RecordedRun) -> dict[str, str] | None:
    """Our variables with those in place that the run recorded; None where it says nothing of them."""
    recorded = run.manifest.environment.get("environment")
    if not isinstance(recorded, Mapping):
        return None
    spec = parse_mode(run.manifest.spec)
    stated = {*dict(spec.env), *(("OMP_NUM_THREADS", "MKL_NUM_THREADS") if spec.threads is not None else ())}
    ours = {name: value for name, value in os.environ.items() if not _is_of_numbers(name)}
    theirs = {str(name): str(value) for name, value in recorded.items() if _is_of_numbers(name) and name not in stated}
    threads, then = run.manifest.environment.get("threads"), run.manifest.environment.get("cores")
    # Where nobody says how many threads, torch takes as many as there are cores.
    if then not in (None, cores()) and spec.threads is None and run.manifest.world_size == 1:
        theirs = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} | theirs
    return ours | theirs


def not_restored(run: RecordedRun) -> list[str]:
    """What of the run's surroundings is another one here, and can change its bits: a sentence each."""
    then, spec = run.manifest.environment, parse_mode(run.manifest.spec)
    if not then or spec.python is not None:
        return []
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    here = {"torch": torch, "python": platform.python_version()}
    said = [
        f"{run.manifest.label} was recorded with {name} {then[name]}, and is repeated with {now}: it need not give the "
        "same bits"
        for name, now in here.items()
        # `2.13.0+cpu` of torch itself, `2.13.0` of its package
        if now and name in then and str(then[name]).partition("+")[0] != now.partition("+")[0]
    ]
    if then.get("cores") not in (None, cores()):
        said.append(
            f"{run.manifest.label} was recorded on {then['cores']} cores, and {cores()} are here: it is repeated with "
            f"its {then.get('threads')} threads"
        )
    return said


def _is_of_numbers(name: str) -> bool:
    return name.startswith(NUMBERS) and not name.startswith(OF_ONE_RUN)
