"""The first bad revision of a range, found with the verdicts of an investigation that is made up here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.api import bisecting
from numdrift.harness.api.bisecting import bisect
from numdrift.harness.errors import UsageError
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.records.results.findings import Findings, PairFindings


class Trainings:
    """Investigations of a repository's commits, by the verdicts that each commit has against the first one."""

    def __init__(self, repository: Path, verdicts: Sequence[str | None]) -> None:
        self.repository, self.compared = repository, list[tuple[str, str, str]]()
        self._verdicts = dict(zip(map(str, range(len(verdicts))), verdicts, strict=True))
        for words in (["init", "-q"], *(["commit", "-q", "--allow-empty", "-m", title] for title in self._verdicts)):
            self.git(*words)

    def git(self, *words: str) -> str:
        named = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        return subprocess.run(named, cwd=self.repository, check=True, capture_output=True, text=True).stdout

    def investigated(self, request: InvestigationRequest, progress: Any) -> tuple[Findings, Path]:
        first, second = (self.git("log", "-1", "--format=%s", str(spec.git)).strip() for spec in request.modes)
        self.compared.append((first, second, request.localize))
        verdict = self._verdicts[second]
        if verdict is None:
            raise UsageError("there is no script train.py")
        pair = PairFindings(first, second, verdict, [f"{verdict}: why"])
        return Findings("train.py", first, {}, [pair]), request.out


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(verdicts: Sequence[str | None]) -> Trainings:
        (tmp_path / "train.py").write_text("")
        of_commits = Trainings(tmp_path, verdicts)
        monkeypatch.setattr(bisecting, "investigated", of_commits.investigated)
        (tmp_path / "runs/train-bisect").mkdir(parents=True, exist_ok=True)
        return of_commits

    return made


def found_in(trainings: Trainings, revisions: str | None, **options: Any) -> Any:
    return bisect(trainings.repository / "train.py", revisions, out=trainings.repository / "runs", **options)


ROUNDING, FAULT = "rounding", "beyond-rounding"


def test_the_first_bad_revision_is_found_in_few_trainings(trainings: Any) -> None:
    of_commits = trainings(["identical"] * 6 + [ROUNDING] * 5 + [FAULT] * 9)
    found = found_in(of_commits, "HEAD~19..HEAD")
    assert (found.last_good.title, found.first_bad.title, found.exit_code) == ("10", "11", 1)
    assert "the first revision whose training differs beyond rounding is" in found.answer and "(11)" in found.answer
    # the two ends of the search are investigated in full, and the others only up to their verdicts
    assert of_commits.compared[-1] == ("10", "11", "all")
    assert len(of_commits.compared) <= 7 and {quick for *_, quick in of_commits.compared[:-1]} == {"none"}
    written = json.loads((of_commits.repository / "runs/train-bisect/bisection.json").read_text())
    assert written["first_bad"]["name"] == found.first_bad.name and written["schema"] == 1
    # with --bits, rounding is a difference, too
    assert found_in(of_commits, "HEAD~19..HEAD", bits=True).first_bad.title == "6"


def test_revisions_that_cannot_be_tested_are_skipped_and_named(trainings: Any) -> None:
    of_commits = trainings([ROUNDING, ROUNDING, ROUNDING, None, "failed", FAULT, FAULT])
    found = found_in(of_commits, "HEAD~6..HEAD")
    assert (found.last_good.title, found.first_bad.title) == ("2", "5")
    assert [version.title for version in found.between] == ["3", "4"]
    assert "or one of the 2 before it that could not be tested" in found.answer
    assert {version.title: version.text for version in found.tested}["3"] == "there is no script train.py"


def test_ends_that_train_the_same_leave_nothing_to_bisect(trainings: Any) -> None:
    of_commits = trainings(["identical", FAULT, ROUNDING])
    found = found_in(of_commits, "HEAD~2..HEAD")
    assert (found.first_bad, found.exit_code, len(of_commits.compared)) == (None, 0, 1)
    assert found.answer.endswith(", so there is nothing to bisect: rounding: why")


@pytest.mark.parametrize(
    ("revisions", "said"),
    [
        ("HEAD", "--git 'HEAD' is not a range"),
        ("HEAD~1...HEAD", "is not a range"),
        (None, "a bisection needs one range"),
        ("HEAD..HEAD~1", "is not a revision before"),
        ("HEAD..HEAD", "is not a revision before"),
        ("v9..HEAD", "has no revision 'v9'"),
    ],
)
def test_what_is_no_range_is_refused(trainings: Any, revisions: str | None, said: str) -> None:
    of_commits = trainings([ROUNDING, FAULT])
    with pytest.raises(UsageError, match=said):
        found_in(of_commits, revisions)
    assert of_commits.compared == []
