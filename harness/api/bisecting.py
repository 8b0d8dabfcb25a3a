"""`numdrift.bisect`: the first revision of a script's repository whose training differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UsageError
from ..investigate.experiments.investigation_plan import InvestigationRequest, Localized
from ..investigate.experiments.laboratory import Progress
from ..launch.batch_plan import reproducer_of
from ..launch.revisions import Commit, commits_between
from ..records.codec import json_text, put
from ..records.modes.mode_spec import ModeSpec, parse_mode
from ..records.results.bisection import BAD, BISECTION, GOOD, SKIPPED, Bisection, TestedVersion
from ..records.results.findings import Findings, PairFindings
from ..search import first_failing
from .api_running import listener
from .investigating import investigated

WITHIN = ("identical", "rounding")
UNTESTABLE = ("failed", "nondeterministic", None)
"""Verdicts that do not say whether a version is good or bad."""


def bisect(
    script: Path | str | None = None,
    revisions: str = "",
    arguments: Sequence[str] = (),
    *,
    mode: str = "cpu",
    bits: bool = False,
    module: str | None = None,
    name: str | None = None,
    out: Path | str = "runs",
    max_steps: int | None = None,
    timeout: float | None = None,
    jobs: int = 2,
    progress: bool = False,
) -> Bisection:
    """Find the first revision of a script's repository whose training differs beyond rounding, as `numdrift bisect`
    does.

        found = numdrift.bisect("train.py", "v1.0..main", mode="compile")
        found.first_bad.name, found.first_bad.text

    `revisions` is `good..bad`, as in `git log`. Each tested revision is trained in `mode` and compared with the good
    one. With `bits`, a revision also counts as bad if it differs by rounding. The other options are those of
    `numdrift.investigate`. The last good revision and the first bad one are investigated in full, in the same folder,
    which also gets `bisection.json`. Calling the function again goes on where it was interrupted.

    Raises UsageError if the range is no range, or if the good revision cannot be trained.
    """
    options = {
        "module": module, "name": name, "out": out, "max_steps": max_steps, "timeout": timeout, "jobs": jobs,
    }  # fmt: skip
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, options)
    return bisected(request, revisions, listener(progress), bits=bits)[0]


def bisected(
    request: InvestigationRequest, revisions: str, progress: Progress, *, bits: bool = False
) -> tuple[Bisection, Findings | None]:
    """Bisect for `numdrift.bisect` and `numdrift bisect`; also return the findings on the last good and first bad
    revision."""
    reproducer, _ = reproducer_of(request.script, request.module, request.arguments)
    good, dots, bad = revisions.partition("..")
    if not (good and dots and bad) or bad.startswith("."):
        raise UsageError(f"--git {revisions!r} is not a range of revisions; write GOOD..BAD, as in v1.0..main")
    commits = commits_between(reproducer.path, good, bad)
    # All revisions are trained in one investigation, so that each is trained only once.
    request = replace(request, name=request.name or f"{reproducer.named_after.stem}-bisect")
    trial = _Trial(request, commits, progress, bits)
    ends = trial.is_bad(len(commits) - 1)
    if not ends:
        last = trial.tested[-1]
        state = "cannot be compared with" if ends is None else "trains the same as"
        answer = f"{bad} {state} {good}, so there is nothing to bisect: {last.text}"
        found = Bisection(str(reproducer.path), str(trial.spec), bits, good, bad, trial.tested, None, None, (), answer)
        return trial.written(found), None
    passing, failing = first_failing(len(commits), trial.is_bad)
    by_name = {version.name: version for version in trial.tested}
    last_good = by_name.get(commits[passing].name, trial.version(passing, GOOD, None, "the good end of the range"))
    first_bad = by_name[commits[failing].name]
    between = [by_name[commit.name] for commit in commits[passing + 1 : failing]]
    progress.say(f"{last_good.name[:10]} is good and {first_bad.name[:10]} is bad: looking for the cause")
    findings = trial.investigated([passing, failing], "all")
    (pair,) = findings.pairs
    or_earlier = f", or one of the {len(between)} before it that could not be tested" if between else ""
    how = "differs" if bits else "differs beyond rounding"
    answer = (
        f"the first revision whose training {how} is {first_bad.name[:10]} ({first_bad.title}){or_earlier}: "
        f"{pair.text[0]}"
    )
    found = Bisection(
        str(reproducer.path), str(trial.spec), bits, good, bad, trial.tested, last_good, first_bad, between, answer
    )
    return trial.written(found), findings


@dataclass
class _Trial:
    """The test of a bisection: a revision is trained and compared with the first of the `commits`, which is good."""

    request: InvestigationRequest
    commits: Sequence[Commit]
    progress: Progress
    bits: bool
    tested: list[TestedVersion] = field(default_factory=list)

    @property
    def spec(self) -> ModeSpec:
        return self.request.modes[0]

    def is_bad(self, number: int) -> bool | None:
        """Train a revision; return None if it has no verdict."""
        commit = self.commits[number]
        self.progress.say(f"testing {commit.name[:10]} ({commit.title})")
        try:
            (pair,) = self.investigated([0, number], "none").pairs
            verdict, text = pair.verdict, pair.text[0]
            outcome = self._outcome(pair)
        except UsageError as error:  # the revision lacks the script, for example
            outcome, verdict, text = SKIPPED, None, str(error)
        self.tested.append(self.version(number, outcome, verdict, text))
        self.progress.say(f"{commit.name[:10]} is {outcome}: {text}")
        return None if outcome == SKIPPED else outcome == BAD

    def version(self, number: int, outcome: str, verdict: str | None, text: str) -> TestedVersion:
        commit = self.commits[number]
        return TestedVersion(commit.name, commit.title, outcome, verdict, text)

    def _outcome(self, pair: PairFindings) -> str:
        if pair.verdict in UNTESTABLE:
            return SKIPPED
        return GOOD if pair.verdict in (WITHIN[:1] if self.bits else WITHIN) else BAD

    def investigated(self, numbers: Sequence[int], localize: Localized) -> Findings:
        """Compare two revisions. Raises UsageError if one of them cannot be trained at all."""
        commits = [self.commits[number].name for number in numbers]
        modes = tuple(replace(self.spec, name=name[:10], git=name) for name in commits)
        return investigated(replace(self.request, modes=modes, localize=localize), self.progress)[0]

    def written(self, found: Bisection) -> Bisection:
        assert self.request.name is not None
        put(self.request.out / self.request.name / BISECTION, json_text(found, indent=1))
        return found
