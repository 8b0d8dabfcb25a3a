"""The report of a support analysis: rows for people, and the JSON that other tools read."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ...records.tools.support_record import CountedCall, SupportRecord

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """One instruction of the backend, in one configuration, and the operator that it came from."""

    text: str
    kind: str
    count: int
    failure_at: str

    @property
    def supported(self) -> bool:
        return not self.failure_at


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An operator that the backend supports, over all its configurations."""

    kind: str
    count: int
    configurations: Sequence[str]
    calls: Sequence[str]


@dataclass(frozen=True, slots=True)
class SupportReport:
    """The summary of a record.

    supported: a row for each operator
    unsupported: a row for each configuration and line
    share: the share of supported instructions among the distinct instructions, None if there are none
    """

    record: SupportRecord
    supported: Sequence[OperatorRow]
    unsupported: Sequence[CountedCall]
    instructions: Sequence[InstructionRow]

    @property
    def share(self) -> float | None:
        if not self.instructions:
            return None
        return sum(row.supported for row in self.instructions) / len(self.instructions)

    @property
    def percentage(self) -> str:
        """The share as `60.00%`; never 100.00% while an instruction is unsupported."""
        share = self.share
        if share is None:
            return "100.00%" if not self.unsupported else "0.00%"
        return f"{min(share * 100, 99.99 if self.unsupported else 100.0):.2f}%"


def report_of(record: SupportRecord) -> SupportReport:
    """Summarize a record."""
    by_kind: dict[str, list[CountedCall]] = {}
    unsupported = []
    # Each distinct instruction counts once. It is unsupported if any call cannot use it.
    counts: Counter[tuple[str, str]] = Counter()
    failures: dict[tuple[str, str], str] = {}
    for counted_call in record.calls:
        if counted_call.call.supported:
            by_kind.setdefault(counted_call.call.kind, []).append(counted_call)
        else:
            unsupported.append(counted_call)
        for text in counted_call.call.instructions:
            key = (text, counted_call.call.kind)
            counts[key] += counted_call.count
            # If the failing instructions of a call are known, its other instructions are supported. Otherwise none is.
            fails = not counted_call.call.failing or text in counted_call.call.failing
            failures[key] = failures.get(key) or (counted_call.call.failure_at if fails else "")
    operators = [
        OperatorRow(
            kind,
            sum(counted.count for counted in calls),
            list(dict.fromkeys(counted.call.configuration for counted in calls)),
            list(dict.fromkeys(counted.call.call for counted in calls if counted.call.call)),
        )
        for kind, calls in by_kind.items()
    ]
    return SupportReport(
        record,
        sorted(operators, key=lambda row: (-row.count, row.kind)),
        sorted(unsupported, key=lambda counted: (counted.call.kind, -counted.count)),
        [InstructionRow(*key, count, failures[key]) for key, count in counts.items()],
    )


def report_json(
    report: SupportReport, mode: str, script: Mapping[str, Any], numdrift: str, verbosity: int
) -> dict[str, Any]:
    """Return the report as JSON values.

    Verbosity 1 adds the backend's instructions, under the backend's own name for them. `script` describes the script
    and how it ended.
    """
    record = report.record
    # By namespace; `aten` is always present, so that readers of the file need no check.
    supported: dict[str, Any] = {"aten": {}}
    for operator in report.supported:
        supported.setdefault(_namespace(operator.kind), {})[operator.kind] = operator.count
    unsupported: dict[str, Any] = {"aten": []}
    for counted in report.unsupported:
        call = {
            "kind": counted.call.kind,
            "failureAt": counted.call.failure_at,
            "call": counted.call.call,
            "configuration": counted.call.configuration,
            "reason": counted.call.reason,
            "count": counted.count,
        }
        unsupported.setdefault(_namespace(counted.call.kind), []).append(call)
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "numdrift_version": numdrift,
        **{f"{name}_version": version for name, version in record.versions.items()},
        "mode": mode,
        "backend": record.backend,
        "dry": record.dry,
        "script": dict(script),
        "support_percentage": report.percentage,
        "supported_operators": supported,
        "unsupported_operators": unsupported,
        "notes": list(record.notes),
    }
    if verbosity == 1:
        rows = report.instructions
        named = record.instruction_set
        supported[named] = [row.text for row in rows if row.supported]
        unsupported[named] = [_instruction_json(row) for row in rows if not row.supported]
        made["instructions"] = [
            {**_instruction_json(row), "supported": row.supported, "failureAt": row.failure_at} for row in rows
        ]
    return made


def _instruction_json(row: InstructionRow) -> dict[str, object]:
    return {"instruction": row.text, "aten_op": row.kind, "count": row.count}


def _namespace(kind: str) -> str:
    return kind.partition("::")[0] if "::" in kind else "other"


# A support analysis as one HTML page, which opens from disk, contains no script, and loads nothing else.

HERE = Path(__file__).parent


def write_page(report: SupportReport, mode: str, script: Mapping[str, Any], numdrift: str) -> str:
    """Return the whole page as text; texts from the run are escaped. `script` is as in `report_json`."""
    style = (HERE / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html").render(
        report=report,
        record=report.record,
        mode=mode,
        script=script,
        numdrift=numdrift,
        style=Markup(style),
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )
    return page.encode("utf-8", "replace").decode("utf-8")
