"""Memory without values that a step has read all the same, as a run keeps it beside the tapes of its steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .call_record import CallRecord
from .codec import json_text, plain, read_fields

PLACE = "tapes/unfilled-{step}.json"
"""Where in the folder of a run those of a step are."""


@dataclass(frozen=True, slots=True)
class UnfilledRead:
    """The call of the script's that has given such memory, and the op in it that has made it, on whose chance values a
    result of the step depends."""

    call: CallRecord
    made_by: str


def write_unfilled(run: Path, found: Sequence[UnfilledRead]) -> None:
    """Write those of one step. Raises OSError."""
    path = run / PLACE.format(step=f"{found[0].call.step:06d}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text({"schema": 1, "reads": plain(found)}, indent=1), encoding="utf-8")


def read_unfilled(run: Path) -> list[UnfilledRead]:
    """Those of all steps of a run, in order; nothing of a file that is damaged."""
    found: list[UnfilledRead] = []
    for path in sorted(run.glob(PLACE.format(step="*"))):
        try:
            found += [read_fields(UnfilledRead, one) for one in json.loads(path.read_text(encoding="utf-8"))["reads"]]
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return found
