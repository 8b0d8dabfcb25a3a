"""Thresholds: for each backend, the score beyond which a drift from the reference is a fault.

A threshold applies to the backend on which it was measured. The default, for all other backends, comes from one study.
To calibrate a backend, measure the scores of at least three benign variants on it (for example, kernels that sum in a
different order, or a different decomposition):

    fault = max(16, 2 * largest benign score)        inspect = fault / 4

The table is `calibration.json` beside this file, schema 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import JournalError, UsageError
from ..records.modes.mode_spec import ModeSpec

SCHEMA = 1
TABLE = Path(__file__).with_name("calibration.json")

LEAST_FAULT = 16.0
"""The default threshold. In the study behind it, the largest benign score was 8.4 and the smallest faulty one 44."""

LEAST_VARIANTS = 3
INSPECT_SHARE = 4.0

MOST_BENIGN = 2.0
"""The largest score that a benign variant may have, as a multiple of the default threshold.

The largest benign score in the table, 22.9 on the CPU, is 1.43 times the default threshold.
"""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a threshold.

    `what` describes the measurement, `torch` is the version of torch, `command` the command that measured the
    threshold, and `date` the time of the measurement.
    """

    what: str
    torch: str = ""
    command: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A backend's row: scores beyond `fault` are faults, scores beyond `inspect` are worth a look.

    `variants` is the number of benign variants that were measured. `largest_benign` and `smallest_fault`, the scores
    nearest to the threshold on either side, are None if they were not measured.
    """

    fault: float
    inspect: float
    largest_benign: float | None
    smallest_fault: float | None
    variants: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class CalibrationTable:
    """The row of each backend, and the default for backends without a row."""

    default: Calibration
    backends: Mapping[str, Calibration] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the table in the form of its file."""
        return {
            "schema": SCHEMA,
            "default": asdict(self.default),
            "backends": {name: asdict(row) for name, row in sorted(self.backends.items())},
        }


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limits for a pair's scores. `calibrated` says whether they were measured on the pair's backend."""

    fault: float
    inspect: float
    calibrated: bool
    provenance: str


def backend_of(spec: ModeSpec) -> str:
    """Return the name of a mode's row: its base, with the compiler's backend and the mode's device if it has them."""
    name = f"{spec.base}:{spec.backend or 'inductor'}" if spec.capabilities.compiles else spec.base
    kind = (spec.device or "").partition(":")[0]
    return f"{name}@{kind}" if kind and kind not in ("cpu", spec.base) else name


def threshold_for(spec: ModeSpec, table: CalibrationTable | None = None) -> Threshold:
    """Return the threshold of a mode: its backend's, or the default."""
    chosen = packaged_table() if table is None else table
    backend = backend_of(spec)
    # The row of a related backend does not count: a measurement on one device says nothing about another.
    row = chosen.backends.get(backend)
    used = row or chosen.default
    facts = [used.provenance.what, used.provenance.torch and f"torch {used.provenance.torch}", used.provenance.date]
    text = ", ".join(part for part in facts if part)
    if row is None:
        text = f"not calibrated for {backend}; it comes from {text}"
    return Threshold(used.fault, used.inspect, row is not None, text)


def threshold_of_pair(a: ModeSpec, b: ModeSpec) -> Threshold:
    """Return the threshold of a pair of modes, in either order.

    If one of the modes is plain eager on the CPU, return the threshold of the other mode; otherwise the larger one.
    """
    thresholds = {backend_of(spec): threshold_for(spec) for spec in (b, a)}
    if len(thresholds) > 1:
        thresholds.pop("cpu", None)
    return max(thresholds.values(), key=lambda threshold: threshold.fault)


def calibrated(
    table: CalibrationTable,
    backend: str,
    benign_scores: Mapping[str, Sequence[float]],
    provenance: Provenance,
    smallest_fault: float | None = None,
) -> CalibrationTable:
    """Return the table with a row for `backend`, computed from the scores of each benign variant.

    Raises UsageError for fewer than LEAST_VARIANTS variants with scores, and for a score beyond MOST_BENIGN times the
    default threshold. A threshold that lets such a score pass would also let faults pass.
    """
    # A variant without scores was not measured, and proves nothing.
    measured = {name: max(scores) for name, scores in benign_scores.items() if scores}
    if len(measured) < LEAST_VARIANTS:
        count = "1 was" if len(measured) == 1 else f"{len(measured)} were"
        raise UsageError(
            f"a calibration of {backend} needs at least {LEAST_VARIANTS} benign variants, but {count} measured"
        )
    # Comparisons with NaN are always false, so a score that is not finite counts as the worst.
    worst = max(measured, key=lambda name: (not math.isfinite(measured[name]), measured[name]))
    largest = measured[worst]
    if not 0 <= largest <= MOST_BENIGN * table.default.fault:
        raise UsageError(f"the variant {worst} is not benign: its score is {largest:.3g}")
    fault = max(LEAST_FAULT, 2 * largest)
    row = Calibration(fault, fault / INSPECT_SHARE, largest, smallest_fault, len(measured), provenance)
    return replace(table, backends={**table.backends, backend: row})


def read_table(path: Path) -> CalibrationTable:
    """Read a table. Raises JournalError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] not in range(1, SCHEMA + 1):
            raise JournalError(path, f"has a schema that this version does not know (it knows 1 to {SCHEMA})")
        rows = {name: _row(row) for name, row in data["backends"].items()}
        return CalibrationTable(_row(data["default"]), rows)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error


@cache
def packaged_table() -> CalibrationTable:
    """Return the table that is packaged with numdrift."""
    return read_table(TABLE)


def _row(data: Mapping[str, Any]) -> Calibration:
    row = Calibration(**{**data, "provenance": Provenance(**data["provenance"])})
    if not 0 < row.inspect <= row.fault < math.inf:
        raise ValueError(f"inspect {row.inspect} and fault {row.fault} are not valid thresholds")
    return row
