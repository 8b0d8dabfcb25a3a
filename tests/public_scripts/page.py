"""The page of the public scripts, docs/reference/public-scripts.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .trial import Ran, Tried

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "public-scripts.md"

HEAD = """# Public scripts

This page shows how well numdrift works on other people's training scripts. `scripts/bench public FOLDER` runs them unmodified: under
plain Python (*bare*), in the modes cpu, compile and lazy, and in an investigation of compile against cpu.
The scripts were {provenance}. The command wrote this page.
The scripts are not in this repository. `FOLDER` contains them and the data that they read.

- The column *cpu* says whether the run in mode cpu did the same as plain Python. *The same* means that it printed the same lines,
  except for times, and that the output files that are compared have the same bytes. In both runs, random generators that the
  script does not seed are seeded with 0.
- Seconds are the time of one whole process. The number in parentheses is this time as a multiple of the time under plain Python.
  In modes other than cpu, long scripts are ended after some steps. A script that never ends by itself is ended in every mode, and
  under plain Python (*ended*).
- *compile against cpu* and *first cause* are the result of `numdrift investigate --no-confirm` over the first steps.

| script | steps | bare | cpu | compile | lazy | compile against cpu | first cause |
|---|--:|--:|---|---|---|---|---|
"""

FAULTS = """
## Planted faults

Each fault changes one line of the script. The change has an effect only in the second of two cpu modes, which sets the variable
`FAULT` (`env.FAULT`). The result is right if the verdict is as expected, and if the changed line contains a proven cause or the
difference in the set-up.

| script | fault | verdict | first cause | seconds | |
|---|---|---|---|--:|---|
"""


def page(tried: Sequence[Tried], provenance: str) -> str:
    rows = [_row(one) for one in tried]
    said = [f"- *{one.name}*: {note}" for one in tried for note in _notes(one)]
    faults = [
        f"| {one.name} | {name} | {fault.verdict} | {_cell(fault.causes[0] if fault.causes else '')} | {fault.seconds:.0f} | "
        f"{'right' if fault.right else '**wrong**'} |"
        for one in tried
        for name, fault in one.faults.items()
    ]
    sources = [
        f"- *{one.name}*: `{one.script}` of {one.repository} at {one.commit}{f'; data: {one.data}' if one.data else ''}"
        for one in tried
    ]
    return "\n".join(
        [
            HEAD.format(provenance=provenance) + "\n".join(rows),
            *(
                [
                    "",
                    "The following runs failed, were refused, or differ from plain Python. Investigations are listed if they found a problem.",
                    "",
                    *said,
                ]
                if said
                else []
            ),
            FAULTS + "\n".join(faults),
            "",
            "## Sources of the scripts",
            "",
            *sources,
            "",
        ]
    )


def _row(one: Tried) -> str:
    cells = [_ran(one.runs[mode], one.bare) for mode in ("cpu", "compile", "lazy")]
    first = one.investigated.causes[0] if one.investigated.causes else ""
    verdict = f"{one.investigated.verdict}, {one.investigated.seconds:.0f} s"
    bare = f"{one.bare.seconds:.1f} s" if one.bare.status == "complete" else one.bare.status
    return f"| {one.name} | {one.runs['cpu'].steps:,} | {bare} | {' | '.join(cells)} | {verdict} | {_cell(first)} |"


def _ran(ran: Ran, bare: Ran) -> str:
    if ran.status != "complete":
        return ran.status
    said = {True: "the same, ", False: "**other**, ", None: ""}[ran.same]
    beside = f" ({ran.seconds / bare.seconds:.1f})" if bare.status == "complete" else ""
    return f"{said}{ran.seconds:.1f} s{beside}"


def _notes(one: Tried) -> list[str]:
    said = [f"bare: {one.bare.message}"] if one.bare.message else []
    said += [f"{mode}: {ran.message or ran.why}" for mode, ran in one.runs.items() if ran.message or ran.why]
    if one.investigated.verdict not in ("identical", "rounding", "failed"):  # why a run failed stands there already
        said.append(f"investigated: {one.investigated.text}")
    return [_cell(text) for text in said]


def _cell(text: str) -> str:
    """A text in one cell, or line, of Markdown."""
    return " ".join(text.replace("|", "\\|").split())
