"""The files of an investigation that go into a bundle, and their kinds."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ...errors import UsageError, nearest
from ...records.codec import json_text
from ...runs.mapped_tensors import read_tensor_file
from ...runs.numpy_values import Array
from ...runs.recorded_run import runs_in
from ...runs.run_layout import EVIDENCE, KEPT, WRITTEN

Kind = Literal["report", "record", "graphs", "snapshots", "repro", "profile", "output", "source", "values"]

KINDS: Sequence[Kind] = get_args(Kind)

MEANINGS: dict[Kind, str] = {
    "report": "findings, report and plots",
    "record": "manifests, losses, digests of parameters, gradients and ops",
    "graphs": "graphs before and after compilation",
    "snapshots": "inputs, outputs and graphs of single executions",
    "repro": "standalone scripts of the culprits, with their inputs",
    "profile": "traces and metrics",
    "output": "the output of the script",
    "source": "the training script, and the user's own kernels",
    "values": "parameters, gradients, batches and step tapes",
}

SENSITIVE: dict[Kind, str] = {
    "snapshots": "parameters, activations and batches",
    "repro": "activations and parameters that reached the culprit",
    "output": "everything that the script printed",
    "source": "the text of the training script and of kernels",
    "values": "all parameters, gradients and batches",
}
"""The sensitive data in files of each kind."""

DATA = frozenset({"snapshots", "repro", "values", "output"})
"""The kinds that a redacted bundle replaces with digests or leaves out."""

PATTERNS: Sequence[tuple[str, Kind]] = (
    (r"journal/(values-.*|tensors)\.bin", "values"),
    (r"(states|outcomes|tapes|kernels)/.*", "values"),
    (r"(run|config)\.json|journal/.*|kernels\.bin", "record"),
    (r"graphs/.*", "graphs"),
    (r"snapshots/.*", "snapshots"),
    (r"profile/.*|(metrics|support)[^/]*\.jsonl?", "profile"),
    (r"(stdout|stderr)\.log", "output"),
    (r"localization[^/]*\.json|sites[^/]*\.json", "report"),
    (r"culprit-.*", "repro"),
)
"""Path patterns within the folder of a run or rank, and the kinds of matching files; the first match counts."""

IN_INVESTIGATION: Sequence[tuple[str, Kind]] = (
    (r"verify_.*\.pkl", "values"),
    (r"(.*/)?culprit-.*", "repro"),
    (r".*\.(json|html|png|svg|md)", "report"),
)

SKIPPED = re.compile(rf"(^|/)(\.[^/]*|[^/]*\.part|__pycache__/.*)$|^({EVIDENCE}/)?[^/]+/({KEPT}|{WRITTEN})/")
"""Files that are not records, and files of unknown content that the training script wrote."""


DRAWN = b'"errors":[{'
"""The bytes that identify a report that plots errors over the inputs of culprits."""


@dataclass(frozen=True, slots=True)
class Item:
    """One file: `name` is its path in the bundle, with slashes, and `path` its current path."""

    name: str
    path: Path
    kind: Kind

    @property
    def is_tensors(self) -> bool:
        return self.path.suffix == ".safetensors"

    @property
    def shows_inputs(self) -> bool:
        """Check whether the file shows values that reached a culprit, as a report or the JSON beside a script may."""
        if self.kind == "report" and self.path.suffix == ".html":
            return DRAWN in self.path.read_bytes()
        return self.kind == "repro" and self.path.suffix == ".json"


def items_of(investigation: Path) -> list[Item]:
    """List every file of an investigation whose kind numdrift knows, with the training scripts under `source/`."""
    items = []
    for path in investigation.rglob("*"):
        name = path.relative_to(investigation).as_posix()
        if path.is_symlink() or not path.is_file() or SKIPPED.search(name):
            continue
        # The path within the run's folder decides the kind.
        within = re.sub(rf"^({EVIDENCE}/)?[^/]+/(rank\d+/)?", "", name) if "/" in name else ""
        kinds = [kind for pattern, kind in PATTERNS if within and re.fullmatch(pattern, within)]
        kinds += [kind for pattern, kind in IN_INVESTIGATION if re.fullmatch(pattern, name)]
        if kinds:
            items.append(Item(name, path, kinds[0]))
    # The training scripts and the user's kernels are outside the investigation's folder; a missing one is left out.
    seen: set[Path] = set()
    names: Counter[str] = Counter()
    for run in runs_in(investigation):
        try:
            own = [Path(path) for _, path in json.loads((run.path / "config.json").read_text())["kernels"]]
        except (OSError, ValueError, KeyError, TypeError):
            own = []
        for path in (Path(run.manifest.reproducer), *own):
            if path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                names[path.name] += 1
                again = f"{names[path.name]}/" if names[path.name] > 1 else ""
                items.append(Item(f"source/{again}{path.name}", path, "source"))
    return sorted(items, key=lambda item: item.name)


def chosen_kinds(left_out: Sequence[str], *, values: bool) -> frozenset[Kind]:
    """Return the kinds to pack. Raises UsageError for an unknown kind."""
    for name in left_out:
        if name not in KINDS:
            raise UsageError(f"--leave-out {name!r} is not a kind of file; {nearest(name, KINDS)}")
    return frozenset(kind for kind in KINDS if kind not in left_out and (values or kind != "values"))


# The digests that replace tensors in a redacted bundle.

SUFFIX = ".digests.json"


def digests_of(path: Path) -> bytes:
    """Return the digests of a tensor file as JSON: each tensor's dtype, shape, SHA-256 of its bytes, and statistics.

    The file's facts are kept, including the calls of a snapshot. Raises JournalError for a file that cannot be read."""
    file = read_tensor_file(path)
    described = {
        name: {"dtype": file.dtypes[name], "shape": list(array.shape), **_digest(array)}
        for name, array in file.tensors.items()
    }
    return json_text({"schema": 1, "redacted": path.name, "tensors": described, "facts": dict(file.facts)}).encode()


def _digest(array: Array) -> dict[str, object]:
    """Return an array's digest. min, max, mean and L2 norm are over its finite elements, in float64, and None if no
    element is finite."""
    facts: dict[str, Any] = {"sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
    # A complex number counts as two numbers, so a NaN in only one of its parts counts once.
    parts = array.view(np.float64 if array.dtype == np.complex128 else np.float32) if array.dtype.kind == "c" else array
    numbers = np.asarray(parts, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    facts |= {"nan": int(np.isnan(numbers).sum()), "inf": int(np.isinf(numbers).sum())}
    if finite.size:
        return facts | {
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
            "l2": float(np.sqrt((finite * finite).sum())),
        }
    return facts | dict.fromkeys(("min", "max", "mean", "l2"))
