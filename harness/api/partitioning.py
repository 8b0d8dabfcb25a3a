"""What `numdrift partition` does: a module or a script in parts, and why that may not be or came to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from numdrift.kernels.registry import load_target

from ..errors import AdoptionError, UsageError
from ..launch.supervise import Reporter
from ..records.mode_registry import registry
from ..records.mode_spec import ModeSpec
from ..records.partition_record import PartitionConfig, refuse_swaps
from ..tools.partition_run import Partitioned, is_factory, partition_module, partition_script

PRESENCE = "numdrift.harness.backends.mode_presence:require_here"
"""Imports torch, which help does without."""


def partitioned(
    target: str | None,
    arguments: Sequence[str],
    spec: ModeSpec,
    config: PartitionConfig,
    told: Callable[[Sequence[str]], AbstractContextManager[Reporter]],
    say: Callable[[str], None],
    *,
    module: str | None,
    inference: bool,
    bisect: bool,
    check: bool,
    steps: int | None,
    out: Path,
    name: str | None,
    timeout: float | None,
) -> Partitioned:
    """Partition what a factory makes, or the models of a script. `told` is who is told of the runs by their names.

    Raises UsageError, and NotAvailable for what the mode or this machine lacks, before anything is started.
    """
    refuse_swaps(spec)
    registry.entry(spec.base)
    load_target(PRESENCE)(spec)
    if module is None and target is not None and is_factory(target):
        if check or steps or arguments:
            raise UsageError(f"{target} is a module: --check, --steps and arguments are of a script")
        place = target.rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            raise UsageError(f"there is no file {place}; give it as FILE.py:FACTORY")
        say(f"{spec.name}: partitioning {target}")
        return partition_module(target, spec, config, out, name, inference=inference, bisect=bisect, timeout=timeout)
    if inference:
        raise UsageError("--inference is of a module (FILE.py:FACTORY); a script evaluates where it does")
    if bisect:
        raise UsageError(
            "--bisect is of a module (FILE.py:FACTORY); of a script: `numdrift investigate --partition-bisect`"
        )
    with told([f"partitioned-{spec.name}", *(["cpu"] if check else [])]) as reporter:
        return partition_script(
            target, module, arguments, spec, config, reporter,
            check=check, steps=steps, out=out, name=name, timeout=timeout,
        )  # fmt: skip


def require_parts(done: Partitioned) -> None:
    """Raise for what failed: UsageError for a limit that is broken, AdoptionError where nothing came of it."""
    record = done.record
    if record.violated:
        raise UsageError(record.violated)
    if record.failure and record.exit_code == UsageError.exit_code:
        raise UsageError(record.failure)
    if record.failure or done.failure:
        raise AdoptionError(f"{record.failure or done.failure}; {done.where}")
    if not record.graphs:
        why = "; ".join(record.notes) or "no model was called, or its forward could not be captured"
        raise AdoptionError(f"nothing was partitioned: {why}; {done.where}")
