"""The part of a machine that a task needs, as users state it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError, nearest
from .engine import key_value
from .engine_task import TaskResources

NEEDS = ("processors", "memory", "devices")

PROCESSORS = 2
"""The processors of a task that states none, and thereby the number of runs of an investigation at the same time."""

UNITS = {"MiB": 2**20, "GiB": 2**30, "MB": 10**6, "GB": 10**9}


def read_needs(stated: Mapping[str, Any], *, devices: int = 0) -> TaskResources:
    """Return what is stated of `NEEDS`, such as `{"processors": 8, "memory": "4 GiB"}`, with defaults for the others.

    devices: the number of accelerators if none is stated. Raises UsageError.
    """
    counts = {}
    for key, least, default in (("processors", 1, PROCESSORS), ("devices", 0, devices)):
        counts[key] = stated.get(key, default)
        if type(counts[key]) is not int or counts[key] < least:
            raise UsageError(f"{key} = {counts[key]!r} is not a whole number of at least {least}")
    memory = stated.get("memory", "0 MiB")
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", str(memory))
    if size is None or size[2] not in UNITS:
        raise UsageError(f'memory = {memory!r} is not a size; write "4 GiB", for example')
    return TaskResources(memory=int(float(size[1]) * UNITS[size[2]]), **counts)


def needs_of_words(words: Sequence[str], *, devices: int = 0) -> TaskResources:
    """Read words of the command line, such as `processors=8` and `memory=64GiB`. Raises UsageError."""
    stated: dict[str, Any] = {}
    for word in words:
        key, value = key_value("--needs", word, "processors=8")
        if key not in NEEDS:
            raise UsageError(f"--needs {word!r}: a task has no {key!r}; {nearest(key, NEEDS)}")
        stated[key] = int(value) if value.isdecimal() else value
    return read_needs(stated, devices=devices)
