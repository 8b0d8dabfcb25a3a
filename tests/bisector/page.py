"""docs/reference/bisector.md: the table, what each names, and whether the goals are met."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/bisector.md"
CAUSES = ("aten.sum", "aten.tanh_backward", "aten.tanh")
TIME_GOAL = 0.5  # of the bisector's time
RUNS_GOAL = 8
OURS = "numdrift"
CAUSES_ALONE = "numdrift, causes only"
GOALS = (
    f"numdrift should take at most {TIME_GOAL:g} times the bisector's time and at most {RUNS_GOAL} runs. It should prove all "
    f"{len(CAUSES)} causes, whereas the bisector names only the first."
)
OTHER_TESTS = {
    "tolerance": "With a tolerance (`torch.allclose`, rtol and atol 1e-4, as in the bisector's own help)",
}

HEAD = """# numdrift compared with PyTorch's CompilerBisector

This page compares numdrift with CompilerBisector, a tool that is part of PyTorch: how long each tool takes, how many runs it
needs, and which causes it names. `scripts/bench bisector` applies both tools to a compiled and an eager run of
`reproducers/sam_tanh.py`. These two runs use different kernels for three ops: `sum`, `tanh_backward` and `tanh`. Both tools
were {provenance}. The command wrote this page.

| tool | Inductor cache | rounds | seconds | processor seconds | runs | steps trained | named causes |
|---|---|--:|--:|--:|--:|--:|---|
"""

READING = """
A round is one execution of each tool. Seconds are medians of the rounds, with the smallest and the largest value in parentheses.
Processor seconds are summed over all processes of a tool, so they depend less on what else the machine is doing. On average,
the tools used {cores} cores (processor seconds divided by seconds).

- *numdrift* is `numdrift investigate reproducers/sam_tanh.py --modes cpu,compile -- --epochs {steps}`, with two runs at a time.
  Each run trains at most {steps} steps in its own process. The time includes the verdict, the float64 [referee](../glossary.md),
  the proofs by [swapping](../glossary.md) in and out, a script for each cause, and a whole run with the causes swapped out. The bisector does none of this.
- *numdrift, causes only* is the same command with `--no-scripts --no-confirm`: it omits the scripts and the run with the causes
  swapped out.
- The bisector needs a test that the user writes. Here the test is `tests/bisector/good_or_bad.py`: it trains {steps} steps
  eagerly and {steps} steps compiled, and checks that the bits are equal. A run of the bisector is one execution of this test.
- *bisector, `run`* is `python -m torch._inductor.compiler_bisector run python tests/bisector/good_or_bad.py`, which executes
  each test in its own process.{emptied}
- *bisector, in process* is `CompilerBisector.do_bisect`, which executes all tests in one process.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One execution of one way: its seconds, its runs and their steps, what it named, whether it left its cache."""

    turn: int
    way: str
    cache: str
    seconds: float
    processor: float
    runs: int
    steps: int
    named: tuple[str, ...]
    cache_left: bool = True

    def line(self) -> str:
        return f"{self.way} ({self.cache}): {self.seconds:.1f} s, {self.processor:.1f} processor s, {self.runs} runs, {self.named}"


def page(measured: Sequence[Measured], steps: int, provenance: str) -> str:
    compared = [one for one in measured if one.way not in OTHER_TESTS]
    others = other_tests(measured)
    emptied = (
        " It removes the whole folder of the Inductor cache before and after the bisection."
        if any(not one.cache_left for one in compared)
        else ""
    )
    parts = [
        HEAD.format(provenance=provenance) + "\n".join(rows(compared)),
        READING.format(steps=steps, emptied=emptied, cores=_cores(compared)).rstrip(),
        f"\n## The goals\n\n{GOALS}\n",
        *goals(compared),
        *(["\n## The bisector with a different test\n", *others] if others else []),
    ]
    return "\n".join(parts) + "\n"


def _cores(measured: Sequence[Measured]) -> str:
    shares = [one.processor / one.seconds for one in measured]
    return f"{min(shares):.2f} to {max(shares):.2f}"


def both_sides(measured: Sequence[Measured]) -> bool:
    """Whether there is anything to compare."""
    return len({one.way in (OURS, CAUSES_ALONE) for one in measured if one.way not in OTHER_TESTS}) == 2


def rows(measured: Sequence[Measured]) -> list[str]:
    return [_row(group) for group in grouped(measured)]


def grouped(measured: Sequence[Measured]) -> list[list[Measured]]:
    """By way and cache: numdrift first, then in the order in which they come first."""
    found: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        found.setdefault((one.way, one.cache), []).append(one)
    return sorted(found.values(), key=lambda group: group[0].way not in (OURS, CAUSES_ALONE))


def _row(group: Sequence[Measured]) -> str:
    first = group[0]
    cells = (
        first.way,
        first.cache,
        str(len(group)),
        _spread([one.seconds for one in group]),
        _spread([one.processor for one in group]),
        _counts([one.runs for one in group]),
        _counts([one.steps for one in group]),
        "; ".join(dict.fromkeys("<br>".join(one.named) for one in group)),
    )
    return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def _counts(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values))


def goals(measured: Sequence[Measured]) -> list[str]:
    """Each goal, met or missed, and by how much."""
    ours = [one for one in measured if one.way == OURS]
    theirs = [one for one in measured if one.way not in (OURS, CAUSES_ALONE)]
    runs, causes = max(one.runs for one in ours), min(causes_in(one.named) for one in ours)
    first = max(causes_in(one.named) for one in theirs)
    lines = [
        f"- runs: {_met(runs <= RUNS_GOAL)}, {runs} where {RUNS_GOAL} are allowed; the bisector takes {_counts([one.runs for one in theirs])}",
        f"- causes: {_met(causes == len(CAUSES))}, {causes} of {len(CAUSES)} proven; the bisector names {first}",
    ]
    return lines + [
        f"- time: {_time(mine, group)}"
        for mine in grouped([one for one in measured if one.way in (OURS, CAUSES_ALONE)])
        for group in grouped(theirs)
        if mine[0].cache == group[0].cache
    ]


def causes_in(named: Sequence[str]) -> int:
    """How many of the causes are named, and not as suspects."""
    sure = " ".join(words for words in named if not words.startswith("suspect"))
    return sum(re.search(rf"[`']{re.escape(op)}[`']", sure) is not None for op in CAUSES)


def _time(ours: Sequence[Measured], theirs: Sequence[Measured]) -> str:
    wall = _ratio(ours, theirs, lambda one: one.seconds)
    processor = _ratio(ours, theirs, lambda one: one.processor)
    return (
        f"{_met(wall <= TIME_GOAL)}; with a {ours[0].cache} cache, *{ours[0].way}* took {wall:.2f} times the time and "
        f"{processor:.2f} times the processor time of *{theirs[0].way}*"
    )


def _ratio(ours: Sequence[Measured], theirs: Sequence[Measured], value: Callable[[Measured], float]) -> float:
    """The median of the ratios of the turns that both have."""
    divisor = {one.turn: value(one) for one in theirs}
    return statistics.median(value(one) / divisor[one.turn] for one in ours if one.turn in divisor)


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def other_tests(measured: Sequence[Measured]) -> list[str]:
    found = {one.way: one for one in measured}
    return [
        f"- {words}: {', '.join(one.named)}; {one.runs} runs, {one.seconds:.0f} seconds, in process, with a cold cache."
        for way, words in OTHER_TESTS.items()
        if (one := found.get(way))
    ]
