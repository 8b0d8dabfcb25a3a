"""Run one mutant against the tests that reach it, and store the results of many."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .reach import Pass, Reached, key_of
from .running import Forks
from .sample import Mutant, Place, find
from .statements import replaced
from .tree import Copy, files_of, test_files

END_TO_END = ("bad_input", "batches", "investigate", "localize", "swaps")
"""The names, without `test_`, of the files in tests/e2e against which survivors are tried by default."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the time that a mutant takes.

    tests: the maximum CPU time in seconds, measured without the mutant, of the tests against which a mutant is tried.
    slow: this maximum for slow tests. The run with the mutant ends after `least` seconds plus three times the time of
    its tests, or later on a busy machine, but after `most` seconds at the latest.
    """

    tests: float
    slow: float = 60.0
    least: float = 15.0
    most: float = 600.0

    def of(self, expected: float) -> float:
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        return min(self.most, (self.least + 3 * expected) * busy)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one mutant.

    result: killed, survived or gone (its statement is not found in this tree).
    why: failed, timeout or an exit code; for a survivor: passed, or "not reached" by any test that may run.
    place: file and line in this tree. found: whether the statement found there is the same, moved, or only alike.
    tests: the number of chosen tests. slow: whether slow tests were among them. left_out: the number of tests that
    reach the mutant but were not chosen, because of the time limit.
    test, said: the test that failed, and its error; or the test that did not end.
    """

    id: str
    area: str
    result: str
    why: str = ""
    place: str = ""
    found: str = ""
    tests: int = 0
    left_out: int = 0
    seconds: float = 0.0
    test: str = ""
    said: str = ""
    slow: bool = False


def run(root: Path, sample: Sequence[Mutant], out: Path, limits: Limits, *, area: str | None = None) -> None:
    """Run every mutant of the sample, or of one area of it, that has no result in `out`, and append each result.

    A survivor runs again if the limits now allow for more tests.
    """
    with _bench(root, sample, out) as bench:
        files = test_files(root, {place.statement.file for place in bench.places.values()})
        reached = bench.reach().over(files)
        for mutant in sample:
            if area not in (None, mutant.area):
                continue
            place, known = bench.places.get(mutant.id), bench.known.get(mutant.id)
            chosen = choose(mutant.id, place, reached, limits.tests) if place else Choice()
            if known is None or (known.result == "survived" and len(chosen.seconds) > known.tests):
                bench.keep(_tried(mutant, place, bench, chosen, limits))


def run_slowly(root: Path, sample: Sequence[Mutant], out: Path, limits: Limits, files: Sequence[str]) -> None:
    """Try the survivors in `out` against all tests of these files, slow ones included. Without files, try them against
    the files of END_TO_END."""
    if not files:
        wanted = {f"test_{name}.py" for name in END_TO_END}
        files = [name for name in files_of(root) if Path(name).name in wanted and "e2e" in Path(name).parts]
    with _bench(root, sample, out) as bench:
        left = {id: one for id, one in bench.known.items() if one.result == "survived" and not one.slow}
        reached = bench.reach(slow=True).over(files)
        for id, before in left.items():
            chosen = choose(id, bench.places[id], reached, limits.slow, others=False)
            after = replace(before, slow=True)
            if chosen.seconds:
                after = replace(after, **_executed(bench.places[id], bench, chosen, limits))
            bench.keep(after)


@dataclass(slots=True)
class Bench:
    """A copy of a tree with everything that a trial needs; `known` are the results that `out` already has."""

    copy: Copy
    forks: Forks
    places: dict[str, Place]
    known: dict[str, Result]
    out: Path
    key: str

    def reach(self, *, slow: bool = False) -> Pass:
        kept = self.out.with_suffix(".reach-slow.jsonl" if slow else ".reach.jsonl")
        return Pass(self.copy, self.forks, self.places, kept, self.key, slow)

    def keep(self, result: Result) -> None:
        self.known[result.id] = result
        with self.out.open("a", encoding="utf-8") as written:
            written.write(json.dumps({"key": self.key} | asdict(result)) + "\n")
        said = f"{result.id} {result.result} {result.why} {result.seconds:.1f} s {result.test}"
        print(said, file=sys.stderr, flush=True)


@contextmanager
def _bench(root: Path, sample: Sequence[Mutant], out: Path) -> Iterator[Bench]:
    key = key_of(root, [one.id for one in sample])
    known = read(out, key)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(root, Path(folder) / "copy")
        yield Bench(copy, Forks(copy.folder, Path(folder)), find(root, sample), known, out, key)


def read(path: Path, key: str | None = None) -> dict[str, Result]:
    """Return the last result of each mutant. Raises ValueError if a result belongs to a tree with a different key."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        facts = json.loads(line)
        if facts.pop("key") != key and key is not None:
            raise ValueError(f"{path} has the results of another tree: name another file")
        found[facts["id"]] = Result(**facts)
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """The tests against which one mutant is tried, in order, with the seconds that each takes without the mutant."""

    seconds: dict[str, float] = field(default_factory=dict)
    left_out: int = 0


def _tried(mutant: Mutant, place: Place | None, bench: Bench, chosen: Choice, limits: Limits) -> Result:
    if place is None:
        return Result(mutant.id, mutant.area, "gone")
    result = Result(
        mutant.id,
        mutant.area,
        "survived",
        "not reached",
        place=f"{place.statement.file}:{place.statement.node.lineno}",
        found=place.found,
        tests=len(chosen.seconds),
        left_out=chosen.left_out,
    )
    if not chosen.seconds:
        return result
    return replace(result, **_executed(place, bench, chosen, limits))


def _executed(place: Place, bench: Bench, chosen: Choice, limits: Limits) -> dict[str, Any]:
    """Run these tests with the mutant, and return the fields of its result.

    If a test that does not belong to the mutant's folder fails, it must fail again alone: a busy machine may have been
    the cause.
    """
    began = time.monotonic()
    file = place.statement.file
    source = (bench.copy.folder / file).read_text(encoding="utf-8")
    restore = bench.copy.put(file, replaced(source, place.statement, place.after))
    left = dict(chosen.seconds)
    try:
        while True:
            ended = _ended(bench, left, limits)
            test = ended["test"]
            if ended["why"] != "failed" or test not in left or _is_near(test, place):
                break
            if _ended(bench, {test: left[test]}, limits)["result"] == "killed":
                break
            del left[test]
    finally:
        restore()
    return ended | {"seconds": round(time.monotonic() - began, 2)}


def _ended(bench: Bench, tests: Mapping[str, float], limits: Limits) -> dict[str, Any]:
    if not tests:
        return {"result": "survived", "why": "passed", "test": "", "said": ""}
    files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
    outcome = bench.forks.run(files, list(tests), limits.of(sum(tests.values())))
    result, why, test, said = "killed", "failed", "", ""
    if outcome.failed:
        test, said = next(iter(outcome.failed.items()))
    elif outcome.timed_out:
        why, test = "timeout", next(reversed(outcome.numbers), "")
    elif outcome.code not in (0, 5):  # pytest's "passed" and "no tests"
        why = f"exit code {outcome.code}"
    else:
        result, why = "survived", "passed"
    return {"result": result, "why": why, "test": test, "said": said}


def _is_near(test: str, place: Place) -> bool:
    """Check whether a test is in a folder with the same name as that of the mutated file."""
    return Path(place.statement.file).parent.name in Path(test.partition("::")[0]).parts


def choose(id: str, place: Place, reached: Sequence[Reached], most: float, *, others: bool = True) -> Choice:
    """Choose the tests against which a mutant is tried.

    First come the tests that reach it, file by file, beginning with the file that is named like the mutated one. Then
    come the other tests of these files, because a test may check a value that an earlier test has computed. Together
    they take at most `most` seconds, but a first test may take up to three times as long. Without `others`, only tests
    that reach the mutant are chosen, quick ones first.
    """
    files = sorted((one for one in reached if id in one.mutants), key=lambda one: _distance(one, id, place))
    ways: list[dict[str, float]] = [{}, {}]
    for one in files:
        everything = not place.statement.in_function or id in one.hits.get("", ())
        for name, seconds in one.seconds.items():
            reaches = everything or id in one.hits.get(name, ())
            ways[0 if reaches else 1][name] = seconds
    chosen: dict[str, float] = {}
    spent = 0.0
    if not others:
        ways = [dict(sorted(ways[0].items(), key=lambda one: one[1]))]
    for way in ways:
        for name, seconds in way.items():
            if spent + seconds <= most or (not chosen and seconds <= 3 * most):
                chosen[name] = seconds
                spent += seconds
    return Choice(chosen, sum(name not in chosen for name in ways[0]))


def _distance(one: Reached, id: str, place: Place) -> tuple[int, float]:
    """Rank test files: first the one named like the mutated file, then those in a folder named like its folder, then
    the others; among equals, quick ones first."""
    source, stem = Path(place.statement.file), Path(one.file).stem.removeprefix("test_")
    cost = sum(seconds for name, seconds in one.seconds.items() if id in one.hits.get(name, ()))
    if not _is_near(one.file, place):
        return 3, cost
    return (0 if stem == source.stem else 1 if stem in source.stem or source.stem in stem else 2), cost
