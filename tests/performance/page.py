"""docs/reference/performance.md: what an investigation takes, and whether that is what is aimed at."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .workloads import (
    CAUSES,
    DEEP,
    DISK_TIMES,
    MEMORY_TIMES,
    MOST_MEMORY,
    ROOT,
    TRAININGS_A_MODE,
    VERDICT,
    WORKLOADS,
    Workload,
)

PAGE = ROOT / "docs/reference/performance.md"

HEAD = """# The cost of an investigation

This page shows how much longer an investigation takes than the bare script, that is, the script without numdrift.
`scripts/bench investigate` alternates between `numdrift investigate --no-confirm` and the bare script in the same two modes.
Both were {provenance}. The command wrote this page.

| script | rounds | bare, both modes | investigation | multiple of bare time | multiple of bare processor time | runs | steps | verdict | first cause |
|---|--:|--:|--:|--:|--:|--:|--:|---|---|
"""

READING = """
A round is one investigation, and one execution of the bare script in each of the two modes. Seconds are medians of the rounds,
with the smallest and the largest value in parentheses. They are the times of whole processes, including the start of Python and
torch. A multiple is computed for each round; the table shows the median. The machine may have been faster or slower for other
rows, so compare numbers only within a row. The column *bare, both modes* is the time of the bare script in one mode plus its
time in the other. The columns *runs* and *steps* show how many training runs the investigation executed, and how many steps these
had (`training_runs` and `steps_trained` in `investigation.json`). Inductor's cache is warm for the investigation and for the bare
script. An investigation here includes the verdict, the causes with their proofs, and a script for each cause. It does not include
the whole run with the causes swapped out.

{trainings}

[Another page](performance-ordinary.md) shows models of ordinary size, such as a ResNet-18, a U-Net and GPT-2.
"""


PHASES = {
    "first runs": "importing torch, and the first run of both modes at the same time",
    "second runs": "the resynced steps, their tapes, and 8 replays of 3 steps with random rounding",
    "verdict": "the referee's replay in double precision, and the comparison of every value of every step with the noise",
    "blocks": "aligning the ops of one step, and executing them in both modes to find those that compute different bits",
    "proofs and scripts": "replaying the step with each cause swapped in and out, and running each script once",
}
"""What an investigation does, one after the other."""

UP_TO_VERDICT = [*PHASES][:3]


@dataclass(frozen=True, slots=True)
class Taken:
    """One execution: of the bare script of a mode (`bare 0`, `bare 1`), of `numdrift`, or of the `bisector`."""

    workload: str
    round: int
    way: str
    seconds: float
    processor: float
    trainings: int
    steps: int
    verdict: str | None = None
    cause: str = ""
    gib: float | None = None
    disk: float | None = None
    state: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    def line(self) -> str:
        peak = "" if self.gib is None else f", {self.gib:.2f} GiB"
        found = f": {self.verdict}, {self.cause}" if self.verdict else ""
        return f"{self.workload}, {self.way}: {self.seconds:.2f} s, {self.processor:.2f} processor s{peak}{found}"


@dataclass(frozen=True, slots=True)
class Measured:
    """All rounds of a workload that are complete."""

    workload: Workload
    rounds: Sequence[Sequence[Taken]]

    @classmethod
    def of(cls, workload: Workload, taken: Sequence[Taken]) -> Measured:
        ours = [one for one in taken if one.workload == workload.name]
        rounds = [[one for one in ours if one.round == number] for number in sorted({one.round for one in ours})]
        return cls(workload, [each for each in rounds if any(one.way == "numdrift" for one in each)])

    def of_way(self, way: str, value: Callable[[Taken], float] = lambda one: one.seconds) -> list[float]:
        """The sum of each round over what begins so."""
        return [sum(value(one) for one in each if one.way.startswith(way)) for each in self.rounds]

    def ratio(self, way: str, value: Callable[[Taken], float] = lambda one: one.seconds) -> float:
        pairs = zip(self.of_way("numdrift", value), self.of_way(way, value), strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs if theirs)

    @property
    def answers(self) -> list[Taken]:
        return [one for each in self.rounds for one in each if one.way == "numdrift"]

    @property
    def verdict_seconds(self) -> list[float]:
        """The seconds after which the verdict was told, of each round that says so."""
        return [sum(one.phases[name] for name in UP_TO_VERDICT) for one in self.answers if one.phases]


def page(taken: Sequence[Taken], provenance: str) -> str:
    measured = [one for workload in WORKLOADS if (one := Measured.of(workload, taken)).rounds]
    trained = "\n".join(
        f"- *{one.workload.name}*: {one.workload.what} (`{command_of(one.workload)}`)" for one in measured
    )
    aims = [line for one in measured for line in goals(one)]
    peaks = [one.gib for one in taken if one.workload == DEEP.name and one.gib is not None]
    if peaks:
        aims.append(
            f"- memory: {met(max(peaks) <= MOST_MEMORY)}, {max(peaks):.2f} GiB at the peak of all processes together, where "
            f"{MOST_MEMORY:g} GiB are allowed; each shared page is counted once. This was measured with {DEEP.what}"
        )
    return "\n".join(
        [
            HEAD.format(provenance=provenance) + "\n".join(row(one) for one in measured),
            READING.format(trainings=trained).rstrip(),
            *where(measured),
            "\n## The goals\n",
            *aims,
            "",
        ]
    )


def where(measured: Sequence[Measured]) -> list[str]:
    """Where the seconds go, in a table; nothing where no investigation has said it."""
    rows = []
    for one in measured:
        answers = [answer for answer in one.answers if answer.phases]
        if answers:
            medians = (statistics.median(each.phases[name] for each in answers) for name in PHASES)
            rows.append(f"| {one.workload.name} | {' | '.join(f'{seconds:.1f} s' for seconds in medians)} |")
    if not rows:
        return []
    head = [f"| script | {' | '.join(PHASES)} |", f"|---|{'--:|' * len(PHASES)}"]
    words = [f"- *{name}*: {what}" for name, what in PHASES.items()]
    return [
        "\n## Where the seconds go\n",
        *head,
        *rows,
        "",
        "The numbers are medians of the rounds. The [glossary](../glossary.md) explains the terms in this list:",
        "",
        *words,
    ]


def command_of(workload: Workload) -> str:
    return " ".join([workload.script, *workload.arguments])


def row(measured: Measured) -> str:
    answers = measured.answers
    cells = (
        measured.workload.name,
        str(len(measured.rounds)),
        spread(measured.of_way("bare")),
        spread(measured.of_way("numdrift")),
        f"{measured.ratio('bare'):.2f}",
        f"{measured.ratio('bare', lambda one: one.processor):.2f}",
        said(str(one.trainings) for one in answers),
        said(str(one.steps) for one in answers),
        said(one.verdict or "undecided" for one in answers),
        said(one.cause for one in answers),
    )
    return f"| {' | '.join(cells)} |"


def goals(measured: Measured) -> list[str]:
    """Each goal of a workload, met or missed, and by how much."""
    workload, lines = measured.workload, []
    if (most := workload.times_bare) is not None:
        ratio = measured.ratio("bare")
        lines.append(f"{met(ratio <= most)}, {ratio:.2f} times the bare time, where {most:g} is allowed")
    if (share := workload.times_bisector) is not None and all(measured.of_way("bisector")):
        ratio, theirs = measured.ratio("bisector"), measured.of_way("bisector")
        lines.append(
            f"{met(ratio <= share)}, {ratio:.2f} times the time of CompilerBisector's `run` ({statistics.median(theirs):.1f} s; "
            f"{min(theirs):.1f} to {max(theirs):.1f} s), where {share:g} is allowed"
        )
    if (seconds := workload.seconds) is not None:
        median = statistics.median(measured.of_way("numdrift"))
        lines.append(f"{met(median <= seconds)}, {median:.1f} s, where {seconds:g} s are allowed")
    if workload.ordinary is not None:
        return [f"- {workload.name}: {line}" for line in goals_of_ordinary(measured)]
    most_trained, allowed = max(one.trainings for one in measured.answers), TRAININGS_A_MODE * len(workload.modes)
    lines.append(
        f"{met(most_trained <= allowed)}, {most_trained} runs of {len(workload.modes)} modes, where {allowed} are allowed"
    )
    return [f"- {workload.name}: {line}" for line in lines]


def goals_of_ordinary(measured: Measured) -> list[str]:
    bare, whole = statistics.median(measured.of_way("bare")), statistics.median(measured.of_way("numdrift"))
    lines = []
    for what, values, (times, more) in (
        ("the verdict", measured.verdict_seconds, VERDICT),
        ("the causes", [whole], CAUSES),
    ):
        if values:
            seconds, allowed = statistics.median(values), times * bare + more
            lines.append(
                f"{what}: {met(seconds <= allowed)}, {seconds:.0f} s, where {allowed:.0f} s are allowed "
                f"({times:g} times the bare time plus {more:g} s)"
            )
    causes = {one.cause for one in measured.answers}
    right = causes == {measured.workload.ordinary}
    lines.append(
        f"the first cause: {met(right)}, {said(sorted(causes))}, where {measured.workload.ordinary} was planted"
    )
    peaks = [one.gib for one in measured.answers if one.gib is not None]
    bare_peaks = [
        one.gib for each in measured.rounds for one in each if one.way.startswith("bare") and one.gib is not None
    ]
    if peaks and bare_peaks:
        times = max(peaks) / max(bare_peaks)
        lines.append(
            f"memory: {met(times <= MEMORY_TIMES)}, {max(peaks):.2f} GiB at the peak of all processes together, {times:.1f} times "
            f"the bare script's, where {MEMORY_TIMES:g} is allowed"
        )
    for one in measured.answers:
        if one.disk and one.state:
            times = one.disk / one.state
            lines.append(
                f"disk: {met(times <= DISK_TIMES)}, {one.disk:.2f} GiB, {times:.1f} times the training's state, where "
                f"{DISK_TIMES:g} is allowed"
            )
    return lines


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"


def said(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def met(is_met: bool) -> str:
    return "met" if is_met else "**missed**"
