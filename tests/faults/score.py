"""What the benchmark found: one row a trial, and the table made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest

from numdrift.harness.drift.calibration import Provenance, backend_of
from numdrift.harness.records.modes.mode_spec import parse_mode

from .case import HARMLESS, Trial
from .site import Blamed, blamed, is_located

JUDGED_BY_DRIFT = ("rounding", "beyond-rounding", "nonfinite", None)
"""Verdicts of a pair whose difference has to be accounted for."""

ACCOUNTED = 0.99
"""The share of a drift from which on it is accounted for."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A trial with its verdict, None where there was none. `score` is the largest of the steps that no ill-conditioned op
    explains, None where no step was scored, and `by_cause` says that not the score but a cause has decided; `first_step`
    is None where no step is beyond rounding. `seconds` is its share of the time that its investigation took, `blamed` says what was made of a
    fault's cause, `located` whether its line is named where the case states one, `silent` that the pair differs and it is neither
    explained nor said what is left."""

    trial: Trial
    verdict: str | None
    score: float | None
    seconds: float
    text: str = ""
    first_step: int | None = None
    blamed: Blamed | None = None
    by_cause: bool = False
    located: bool | None = None
    silent: bool = False

    @classmethod
    def of(cls, trial: Trial, pair: Mapping[str, Any], seconds: float) -> Judged:
        """Take from a pair of `investigation.json`; an empty one is a trial without a verdict."""
        score, threshold = pair.get("score"), pair.get("threshold")
        if any(step.get("explained") for step in pair.get("steps", ())):
            score = max((float(step["score"]) for step in pair["steps"] if not step.get("explained")), default=0.0)
        beyond = pair.get("verdict") == "beyond-rounding"
        followed = pair.get("verdict") == trial.case.expected == "different-setup"
        return cls(
            trial=trial,
            verdict=pair.get("verdict"),
            score=None if score is None else float(score),
            seconds=seconds,
            text=next(iter(pair.get("text", ())), "no such pair in the findings"),
            first_step=pair.get("first_significant_step"),
            blamed=blamed(pair, trial.case.culprits) if trial.case.culprits and (beyond or followed) else None,
            by_cause=beyond and score is not None and threshold is not None and float(score) <= float(threshold),
            located=is_located(pair, trial.case.line) if trial.case.line else None,
            silent=is_silent(pair),
        )

    @property
    def right(self) -> bool:
        """Whether a fault raised an alarm, a benign variant none. No verdict is no alarm, and not harmless either."""
        if self.trial.case.benign:
            return self.verdict in HARMLESS
        return self.verdict is not None and self.verdict not in HARMLESS

    @property
    def exact(self) -> bool:
        return self.verdict == self.trial.case.expected or (self.trial.case.benign and self.right)

    @property
    def backend(self) -> str:
        return backend_of(parse_mode(self.trial.against or self.trial.spec))


CASES_PLANTED = """plants every case of `tests/faults/cases` in the training scripts of `tests/faults/models`. It
compares each changed script with the unchanged one"""

XLA_PLANTED = """executes training scripts of `tests/faults/models` in mode `xla`: some unchanged, others with planted cases of
`tests/faults/xla_trials.py`, or with changes to torch_xla itself. It compares each of these runs with a run of the unchanged
script in mode `cpu`, in the same interpreter"""


@dataclass(frozen=True, slots=True)
class Score:
    """Everything that was judged."""

    judged: Sequence[Judged]

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.judged)

    @property
    def faults(self) -> list[Judged]:
        return [one for one in self.judged if not one.trial.case.benign]

    @property
    def benign(self) -> list[Judged]:
        return [one for one in self.judged if one.trial.case.benign]

    @property
    def true_positive_rate(self) -> float:
        """Faults that raised an alarm over all faults."""
        return _share(one.right for one in self.faults)

    @property
    def false_positive_rate(self) -> float:
        """Benign variants that raised an alarm over all benign variants."""
        return _share(not one.right for one in self.benign)

    @property
    def sites(self) -> list[Judged]:
        """Faults whose cause the case states, and that were judged by their drift, or by data that came in otherwise."""
        return [one for one in self.faults if one.blamed is not None]

    @property
    def perfect(self) -> bool:
        return all(one.exact and not one.silent for one in self.judged)

    def benign_scores(self) -> dict[str, dict[str, list[float]]]:
        """Scores of benign variants by backend and by case; a variant with the same bits has the score 0."""
        found: dict[str, dict[str, list[float]]] = {}
        for one in self.benign:
            score = 0.0 if one.verdict == "identical" else one.score
            if score is not None:
                found.setdefault(one.backend, {}).setdefault(one.trial.name, []).append(score)
        return found

    def smallest_fault_score(self, backend: str) -> float | None:
        """The smallest score of a fault whose drift decided, and None where there is none."""
        scores = [
            one.score
            for one in self.faults
            if one.backend == backend
            and one.trial.case.expected == "beyond-rounding"
            and one.verdict in ("identical", "rounding", "beyond-rounding")
            and not one.by_cause
            and one.score is not None
        ]
        finite = [score for score in scores if math.isfinite(score)]
        return min(finite, default=None)

    def table(self, *, reasons: bool = True) -> str:
        """The result in Markdown: by kind, by backend, and what went wrong, with what numdrift said to it."""
        by = (self._by_kind(), self._rates(), self._by_backend())
        parts = (*by, self._causes(), self._lines(), self._silent(), self._misses(reasons))
        return "\n\n".join("\n".join(part) for part in parts if part)

    def _by_kind(self) -> list[str]:
        lines = ["| kind | cases | trials | alarms | verdict as expected |", "|---|--:|--:|--:|--:|"]
        for kind in dict.fromkeys(one.trial.case.kind for one in (*self.faults, *self.benign)):
            ours = [one for one in self.judged if one.trial.case.kind == kind]
            alarms = sum(one.verdict is not None and one.verdict not in HARMLESS for one in ours)
            cases = len({(one.trial.case.kind, one.trial.case.name) for one in ours})
            lines.append(f"| {kind} | {cases} | {len(ours)} | {alarms} | {sum(one.exact for one in ours)} |")
        return lines

    def _rates(self) -> list[str]:
        models = len({one.trial.model for one in self.judged})
        exact = f"exactly the expected verdict: {_share(one.exact for one in self.faults):.3f}"
        faults = f"{len(self.faults)} faults on {models} models"
        found, alarms = (
            interval(round(rate * len(trials)), len(trials))
            for rate, trials in ((self.true_positive_rate, self.faults), (self.false_positive_rate, self.benign))
        )
        return [
            f"- true-positive rate {self.true_positive_rate:.3f}{found} ({faults}; {exact})",
            f"- false-positive rate {self.false_positive_rate:.3f}{alarms} ({len(self.benign)} benign variants)",
            f"- {self.seconds:.0f} s in total, {self.seconds / max(1, len(self.judged)):.1f} s per trial",
        ]

    def _by_backend(self) -> list[str]:
        lines = [
            "| backend | benign trials | largest benign score | smallest fault score |",
            "|---|--:|--:|--:|",
        ]
        for backend, benign in sorted(self.benign_scores().items()):
            scores = [score for ours in benign.values() for score in ours]
            fault = self.smallest_fault_score(backend)
            least = "" if fault is None else f"{fault:.3g}"
            lines.append(f"| `{backend}` | {len(scores)} | {max(scores):.3g} | {least} |")
        return lines

    def _causes(self) -> list[str]:
        found = [one.blamed for one in self.sites if one.blamed is not None]
        tests = sum(one.tests for one in found) / max(1, len(found))
        runs = sum(one.runs for one in found) / max(1, len(found))
        away = [one for one in self.sites if one.blamed is not None and not one.blamed.first]
        return [
            "The next table shows how well the causes are found, by the number of faults planted at once. It covers the faults whose",
            "site is known and whose verdict is `beyond-rounding` or `different-setup`:",
            "",
            "| at once | trials | faults planted | recall | proven culprits | precision | exact site |",
            "|---|--:|--:|--:|--:|--:|--:|",
            *(
                _cause_row(str(planted), [one for one in found if one.planted == planted])
                for planted in sorted({one.planted for one in found})
            ),
            _cause_row("all", found),
            "",
            "Recall is the share of the planted faults that are among the proven culprits. Precision is the share of the proven",
            "culprits that are planted faults. *Exact site* is the share of the trials in which all planted faults come first in the",
            f"answer. The number of suspects that remain unproven is {sum(one.suspects for one in found)}. On average, a trial",
            f"in this table executes {tests:.1f} hybrids of a step and takes {runs:.1f} runs.",
            *(
                [
                    "",
                    "In the following trials, a planted fault does not come first in the answer:",
                    "",
                    *(f"- `{one.trial.case.kind}/{one.trial.name}` on {one.trial.model}" for one in away),
                ]
                if away
                else []
            ),
        ]

    def _lines(self) -> list[str]:
        """What was made of the draws and the calls whose line a case states; nothing where none does."""
        stated = [one for one in self.judged if one.located is not None]
        away = [f"`{one.trial.case.kind}/{one.trial.name}` on {one.trial.model}" for one in stated if not one.located]
        named = (
            f"In {len(stated)} trials, the cause is a draw of random numbers or a call that does not repeat, and its line is "
            f"known. The answer names that line in {len(stated) - len(away) if away else 'all'} of them"
        )
        return [f"{named}; not {', '.join(away)}." if away else f"{named}."] if stated else []

    def _silent(self) -> list[str]:
        silent = [one for one in self.judged if one.silent]
        if not silent:
            return [
                "For every pair of runs that differ, the answer explains all of the drift, or says which part is unexplained and why."
            ]
        named = (f"- `{one.trial.case.kind}/{one.trial.name}` on {one.trial.model}" for one in silent)
        return [f"{len(silent)} pairs differ, and neither their causes nor a sentence account for it:", "", *named]

    def _misses(self, reasons: bool) -> list[str]:
        missed = [one for one in self.judged if not one.exact]
        if not missed:
            return ["Every verdict is as expected."]
        return ["Not as expected:", "", *(_said(one, reasons) for one in missed)]

    def page(self, provenance: Provenance, planted: str = CASES_PLANTED, title: str = "Score on planted faults") -> str:
        """The page that documents the score; `planted` says what the command does with the training scripts."""
        return PAGE.format(
            title=title,
            where=" in mode `xla`" if planted == XLA_PLANTED else "",
            command=provenance.command,
            planted=planted,
            torch=provenance.torch,
            date=provenance.date,
            table=self.table(reasons=False),
        )


PAGE = """# {title}

This page says how often numdrift's verdict is right{where}. `{command}` {planted}. The measurements were made
on {date} with torch {torch}. The command wrote this page.

Each case is either a fault or a benign variant, that is, a change that must not count as a fault. A fault counts as found if
its verdict is neither `identical` nor `rounding`. A benign variant counts as a false alarm if its verdict is anything other
than these two. The [score](../glossary.md) of a trial is measured in steps that both sides take from the same state: it is the
largest distance between the two sides' values of a tensor, as a multiple of the reference's rounding noise. For a backend
without [calibration](../guide/how-a-verdict-is-found.md), the threshold is a score of 16.

{table}
"""


def is_silent(pair: Mapping[str, Any]) -> bool:
    """Whether a pair of `investigation.json` differs, and nothing accounts for all of that: of causes what is left of it
    without them has to be said, and of no cause why there is none."""
    differs = pair.get("first_differing_step") is not None and pair.get("verdict") in JUDGED_BY_DRIFT
    explained = pair.get("explained")
    return differs and not pair.get("unexplained") and not (explained is not None and float(explained) >= ACCOUNTED)


def _said(one: Judged, reasons: bool) -> str:
    said = (
        f"- `{one.trial.case.kind}/{one.trial.name}` on {one.trial.model}: {one.verdict or 'undecided'}, expected "
        f"{one.trial.case.expected}"
    )
    return f"{said} ({one.text})" if reasons else said


def _cause_row(name: str, found: Sequence[Blamed]) -> str:
    planted, named = sum(one.planted for one in found), [match for one in found for match in one.matches]
    recall = sum(len(one.found) for one in found) / max(1, planted)
    return (
        f"| {name} | {len(found)} | {planted} | {recall:.3f} "
        f"| {len(named)} | {_share(map(bool, named)):.3f} | {_share(one.first for one in found):.3f} |"
    )


def interval(hits: int, count: int) -> str:
    """Return the 95 % interval of a rate, by Wilson's score method (JASA 22, 1927); "" if there are no trials."""
    if not count:
        return ""
    bounds = binomtest(hits, count).proportion_ci(method="wilson")
    return f", 95 % interval {bounds.low:.3f} to {bounds.high:.3f}"


def _share(found: Iterable[bool]) -> float:
    listed = list(found)
    return sum(listed) / len(listed) if listed else 0.0
