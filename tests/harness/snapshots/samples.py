"""Snapshots of whole training steps, for tests that need no process of their own."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.records.run.execution_facts import KEYWORDS, Execution
from numdrift.harness.snapshots.snapshot_file import write_snapshot
from numdrift.harness.snapshots.snapshot_record import Circumstances, Port, Snapshot
from numdrift.harness.tape.tape import Tape

from ..tape.trainings import started

EXECUTION = Execution("0-forward", "forward", 3, 2, 0)
AROUND = Circumstances("cpu", "cpu", 0, 1, torch.__version__, torch.get_num_threads(), "/there/train.py")


@functools.cache
def step_of(name: str) -> Tape:
    """A step of one of the worker's trainings, its watched values renamed as outputs are."""
    tape = started(name).taped(3)
    watched = [replace(one, name=f"output {number}") for number, one in enumerate(tape.watched)]
    return replace(tape, watched=tuple(watched))


@functools.cache
def names_of(name: str) -> tuple[str, ...]:
    return tuple(one.name for one in started(name).taped(3).watched)


def snapshot_of(name: str, **changed: Any) -> Snapshot:
    """The step as one execution."""
    tape = step_of(name)
    made = Snapshot(
        EXECUTION,
        AROUND,
        "chosen",
        KEYWORDS,
        (),
        tuple(Port(called, one.view) for called, one in zip(names_of(name), tape.watched, strict=True)),
        tape,
    )
    return replace(made, **changed)


def written(folder: Path, name: str, **changed: Any) -> Path:
    snapshot = snapshot_of(name, **changed)
    path = folder / snapshot.execution.file
    write_snapshot(path, snapshot)
    return path
