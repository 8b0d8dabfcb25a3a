"""`numdrift.bisect`: the first revision of a script's repository, or version of torch, whose training differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..investigate.experiments.investigation_plan import InvestigationRequest, Localized
from ..investigate.experiments.laboratory import Progress
from ..launch.batch_plan import reproducer_of
from ..launch.revisions import commits_between
from ..launch.torch_versions import interpreter_with, versions_between
from ..records.codec import json_text, put
from ..records.modes.mode_spec import ModeSpec, parse_mode
from ..records.results.bisection import BAD, BISECTION, GOOD, SKIPPED, TestedVersion, VersionBisection
from ..records.results.findings import WITHIN, Findings, PairFindings
from ..search import first_failing
from .api_running import listener
from .investigating import investigated

UNTESTABLE = ("failed", "nondeterministic", None)
"""Verdicts that do not say whether a version is good or bad."""


def bisect(
    script: Path | str | None = None,
    revisions: str | None = None,
    arguments: Sequence[str] = (),
    *,
    torch: str | None = None,
    packages: Sequence[str] = ("numpy",),
    pip: Sequence[str] = (),
    pythons: Sequence[Path | str] = (),
    mode: str = "cpu",
    bits: bool = False,
    module: str | None = None,
    name: str | None = None,
    out: Path | str = "runs",
    max_steps: int | None = None,
    timeout: float | None = None,
    jobs: int = 2,
    progress: bool = False,
) -> VersionBisection:
    """Find the first revision of a script's repository whose training differs beyond rounding, as `numdrift bisect`
    does. Or find the first version of torch.

        found = numdrift.bisect("train.py", "v1.0..main", mode="compile")
        found.first_bad.name, found.first_bad.text
        numdrift.bisect("train.py", torch="2.9.0..2.13.0", packages=["numpy", "einops"])

    `revisions` is `good..bad`, as in `git log`. `torch` is a range of versions. Each tested version of torch is
    installed with the `packages` into an environment of its own; `pip` are further arguments of pip. Instead, `pythons`
    are existing interpreters, the good one first. Each tested version is trained in `mode` and compared with the good
    one. With `bits`, a version also counts as bad if it differs by rounding. The other options are those of
    `numdrift.investigate`. The last good version and the first bad one are investigated in full, in the same folder,
    which also gets `bisection.json`. Calling the function again goes on where it was interrupted.

    Raises UsageError if the range is no range.
    """
    options = {
        "module": module, "name": name, "out": out, "max_steps": max_steps, "timeout": timeout, "jobs": jobs,
    }  # fmt: skip
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, options)
    versions = VersionRange(revisions, torch, tuple(packages), tuple(pip), tuple(map(str, pythons)))
    return bisected(request, versions, listener(progress), bits=bits)[0]


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions among which a bisection searches, by exactly one of `revisions`, `torch` and `pythons`."""

    revisions: str | None = None
    torch: str | None = None
    packages: tuple[str, ...] = ("numpy",)
    pip: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()

    def versions(self, script: Path, say: Callable[[str], None]) -> list[Version]:
        """Return the versions, the good one first. Raises UsageError."""
        if sum(map(bool, (self.revisions, self.torch, self.pythons))) != 1:
            raise UsageError(
                "a bisection needs one range: of revisions (--git v1.0..main), of versions of torch "
                "(--torch 2.9.0..2.13.0), or interpreters (--python PATH, several times)"
            )
        if self.revisions:
            commits = commits_between(script, *_ends("--git", self.revisions, "v1.0..main"))
            return [Version(commit.name, commit.title, partial(dict, git=commit.name)) for commit in commits]
        if self.torch:
            names = versions_between(*_ends("--torch", self.torch, "2.9.0..2.13.0"), self.pip)
            return [Version(name, f"torch {name}", partial(self._with_torch, name, say)) for name in names]
        if len(self.pythons) < 2:
            raise UsageError("a bisection needs two interpreters: name --python several times, the good one first")
        pythons = enumerate(self.pythons)
        return [Version(f"python{number}", path, partial(dict, python=path)) for number, path in pythons]

    def _with_torch(self, version: str, say: Callable[[str], None]) -> dict[str, str]:
        return {"python": str(interpreter_with(version, self.packages, self.pip, say))}


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a training: its name, its title, and the keys of a mode that trains it."""

    name: str
    title: str
    keys: Callable[[], dict[str, str]]

    @property
    def label(self) -> str:
        """The name of the version's mode."""
        return self.name[:10]


def bisected(
    request: InvestigationRequest, of_range: VersionRange, progress: Progress, *, bits: bool = False
) -> tuple[VersionBisection, Findings | None]:
    """Bisect for `numdrift.bisect` and `numdrift bisect`; also return the findings on the last good and first bad
    version."""
    reproducer, _ = reproducer_of(request.script, request.module, request.arguments)
    versions = of_range.versions(reproducer.path, progress.say)
    # All versions are trained in one investigation, so that each is trained only once.
    request = replace(request, name=request.name or f"{reproducer.named_after.stem}-bisect")
    trial = _VersionTest(request, versions, progress, bits)
    good, bad = versions[0].label, versions[-1].label
    found = VersionBisection(
        str(reproducer.path), str(trial.spec), bits, versions[0].name, versions[-1].name, (), None, None, (), ""
    )
    ends = trial.is_bad(len(versions) - 1)
    if not ends:
        state = "cannot be compared with" if ends is None else "trains the same as"
        answer = f"{bad} {state} {good}, so there is nothing to bisect: {trial.tested[-1].text}"
        return trial.written(replace(found, tested=trial.tested, answer=answer)), None
    passing, failing = first_failing(len(versions), trial.is_bad)
    by_name = {version.name: version for version in trial.tested}
    last_good = by_name.get(versions[passing].name, trial.version(passing, GOOD, None, "the good end of the range"))
    first_bad = by_name[versions[failing].name]
    between = [by_name[version.name] for version in versions[passing + 1 : failing]]
    progress.say(f"{versions[passing].label} is good and {versions[failing].label} is bad: looking for the cause")
    findings = trial.investigated([passing, failing], "all")
    what = "revision" if of_range.revisions else "version"
    or_earlier = f", or one of the {len(between)} before it that could not be tested" if between else ""
    answer = (
        f"the first {what} whose training {'differs' if bits else 'differs beyond rounding'} is "
        f"{versions[failing].label} ({first_bad.title}){or_earlier}: {findings.pairs[0].text[0]}"
    )
    ended = replace(
        found, tested=trial.tested, last_good=last_good, first_bad=first_bad, between=between, answer=answer
    )
    return trial.written(ended), findings


def _ends(flag: str, text: str, example: str) -> tuple[str, str]:
    """Return both ends of a range `good..bad`. Raises UsageError."""
    good, dots, bad = text.partition("..")
    if not (good and dots and bad) or bad.startswith("."):
        raise UsageError(f"{flag} {text!r} is not a range; write GOOD..BAD, as in {example}")
    return good, bad


@dataclass
class _VersionTest:
    """The test of a bisection: a version is trained and compared with the first of the `versions`, which is good."""

    request: InvestigationRequest
    versions: Sequence[Version]
    progress: Progress
    bits: bool
    tested: list[TestedVersion] = field(default_factory=list)

    @property
    def spec(self) -> ModeSpec:
        return self.request.modes[0]

    def is_bad(self, number: int) -> bool | None:
        """Train a version; return None if it has no verdict."""
        version = self.versions[number]
        self.progress.say(f"testing {version.label} ({version.title})")
        try:
            (pair,) = self.investigated([0, number], "none").pairs
            verdict, text = pair.verdict, pair.text[0]
            outcome = self._outcome(pair)
        except UsageError as error:  # the revision lacks the script, for example
            outcome, verdict, text = SKIPPED, None, str(error)
        self.tested.append(self.version(number, outcome, verdict, text))
        self.progress.say(f"{version.label} is {outcome}: {text}")
        return None if outcome == SKIPPED else outcome == BAD

    def version(self, number: int, outcome: str, verdict: str | None, text: str) -> TestedVersion:
        version = self.versions[number]
        return TestedVersion(version.name, version.title, outcome, verdict, text)

    def _outcome(self, pair: PairFindings) -> str:
        if pair.verdict in UNTESTABLE:
            return SKIPPED
        return GOOD if pair.verdict in (WITHIN[:1] if self.bits else WITHIN) else BAD

    def investigated(self, numbers: Sequence[int], localize: Localized) -> Findings:
        """Compare two versions. Raises UsageError if one of them cannot be trained at all."""
        versions = [self.versions[number] for number in numbers]
        modes = []
        for version in versions:
            stated: dict[str, Any] = version.keys()
            modes.append(replace(self.spec, name=version.label, **stated))
        return investigated(replace(self.request, modes=tuple(modes), localize=localize), self.progress)[0]

    def written(self, found: VersionBisection) -> VersionBisection:
        assert self.request.name is not None
        folder = self.request.out / self.request.name
        folder.mkdir(parents=True, exist_ok=True)  # nothing may have been trained
        put(folder / BISECTION, json_text(found, indent=1))
        return found
