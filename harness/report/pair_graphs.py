"""The graphs of two runs side by side. The culprits of an investigation are circled, and a module's colour shows the
module's drift."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import GraphsNotFound, JournalError, NumdriftError
from ..graphs.culprit_marks import Mark, marks_for
from ..graphs.diff.difference_record import Diff
from ..graphs.diff.graph_comparison import compare_graphs
from ..graphs.page.diff_page import write_page
from ..graphs.run_graphs import RunGraphs, graphs_of
from ..records.codec import Unreadable
from ..records.results.findings import INVESTIGATION, Findings, PairFindings
from ..runs.recorded_run import RecordedRun
from .where import module_drift

LARGEST = 3_000_000
"""The largest number of characters that a pair's graphs may have within a report, since people send reports to each
other. A separate page may be larger."""


@dataclass(frozen=True, slots=True)
class PairGraphs:
    """The page that shows the graphs of a pair; if there is none, `why` is the reason."""

    page: str = ""
    why: str = ""


def pair_graphs(pair: PairFindings, runs: Sequence[RecordedRun]) -> PairGraphs:
    """Return the page with the graphs that both runs of a pair recorded."""
    of_mode = {run.manifest.mode: run for run in runs}
    if pair.a not in of_mode or pair.b not in of_mode:
        return PairGraphs(why="the run of one of the modes no longer exists")
    try:
        a, b = graphs_of(of_mode[pair.a]), graphs_of(of_mode[pair.b])
    except (GraphsNotFound, JournalError):
        return PairGraphs(why="the graphs were not recorded (--graphs records them)")
    try:
        diff = compare_graphs(a, b)
        page = graphs_page(diff, a, b, pair)
    except NumdriftError as error:  # the findings can be reported without the graphs
        return PairGraphs(why=f"the graphs cannot be shown: {error}")
    if len(page) > LARGEST:
        command = f"numdrift graph diff {a.run.path} {b.run.path} --html graphs.html"
        why = f"the graphs are too large to be shown within the report: `{command}` writes them to a page"
        return PairGraphs(why=why)
    return PairGraphs(page)


def graphs_page(diff: Diff, a: RunGraphs, b: RunGraphs, pair: PairFindings | None) -> str:
    """Return the page of the difference `diff`, with the drift of the modules of `pair`. Raises JournalError."""
    marks: list[dict[str, Mapping[str, Mark]]] = []  # the culprits in the graphs of each side
    for side, graphs in zip((diff.a, diff.b), (a, b), strict=True):
        names = dict.fromkeys((*side.graphs, *side.post_graphs))
        marks.append({name: marks_for(graphs.run, graphs.graph(name)) for name in names})
    return write_page(diff, a, b, marks[0], marks[1], module_drift(pair) if pair is not None else {})


def page_of_difference(diff: Diff, a: RunGraphs, b: RunGraphs) -> str:
    """Return the page of the difference `diff`, with the culprits and the drift that an investigation of the two runs
    found. Raises JournalError."""
    return graphs_page(diff, a, b, investigated_pair(a.run, b.run))


def investigated_pair(a: RecordedRun, b: RecordedRun) -> PairFindings | None:
    """Return the findings about two runs, given in either order, from the investigation that they belong to; None if
    there are none."""
    path = a.path.parent / INVESTIGATION
    if b.path.parent != a.path.parent:
        return None
    try:
        findings = Findings.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, Unreadable, RecursionError):
        return None  # the page lacks only the colours; the code that reads the culprits reports the damaged file
    modes = {a.manifest.mode, b.manifest.mode}
    return next((pair for pair in findings.pairs if {pair.a, pair.b} == modes), None)
