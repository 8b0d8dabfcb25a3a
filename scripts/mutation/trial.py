"""One mutant against the tests that reach it, and the results of many."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .reach import Reached, key_of, reach
from .running import Forks
from .sample import Mutant, Place, find
from .statements import replaced
from .tree import Copy

END_TO_END = {
    "drift": "investigate",
    "localize": "localize",
    "worker": "localize",
    "recorder": "batches",
    "swaps": "swaps",
    "runs": "batches",
    "cli": "bad_input",
    "investigate": "investigate",
}
"""The one file of tests/e2e, without its `test_`, that survivors of an area are tried against where that is asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When it is enough.

    tests: seconds of computing that the tests take without the mutant which it is tried against.
    It is given up after `least` and three times what they take, longer on a busy machine, `most` at the latest.
    """

    tests: float
    least: float = 15.0
    most: float = 180.0

    def of(self, expected: float) -> float:
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        return min(self.most, (self.least + 3 * expected) * busy)


@dataclass(frozen=True, slots=True)
class Result:
    """How one mutant ended.

    result: killed, survived or gone (its statement is not found in this tree).
    why: failed, timeout; of a survivor: passed, or "not reached" by any test that may run.
    place: file and line in this tree. found: whether the statement is the same, moved, or one alike.
    tests: how many were to run. left_out: how many more reach it, beyond the limit.
    test, said: the one that failed, and what it said; or the one that did not end.
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


def run(
    root: Path, sample: Sequence[Mutant], out: Path, limits: Limits, *, slow: bool, area: str | None = None
) -> None:
    """Run every mutant of the sample, or of one area of it, that `out` has no result of, and append each as it ends.

    Survivors that tests reach which were left out are run again where the limits allow for more of those.

    slow: try survivors also against a file of whole commands.
    """
    key = key_of(root, [one.id for one in sample])
    known = read(out, key)
    places = find(root, sample)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, out.open("a", encoding="utf-8") as written:
        work = Path(folder)
        copy = Copy(root, work / "copy")
        forks = Forks(copy.folder, work)
        reached = reach(root, copy, forks, places, out.with_suffix(".reach.jsonl"), key)
        for mutant in sample:
            if area not in (None, mutant.area):
                continue
            place, result = places.get(mutant.id), known.get(mutant.id)
            chosen = choose(mutant.id, place, reached, limits.tests) if place else Choice()
            if result is None or (result.result == "survived" and len(chosen.seconds) > result.tests):
                result = _tried(mutant, place, copy, forks, chosen, limits)
            if slow and place and result.result == "survived" and not result.slow:
                result = _tried_slowly(mutant, place, copy, forks, result)
            if result == known.get(mutant.id):
                continue
            written.write(json.dumps({"key": key} | asdict(result)) + "\n")
            written.flush()
            said = f"{mutant.id} {result.result} {result.why} {result.seconds:.1f} s {result.test}"
            print(said, file=sys.stderr, flush=True)


def read(path: Path, key: str | None = None) -> dict[str, Result]:
    """The last result of each mutant. Raises ValueError where they are of another tree than `key`."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        facts = json.loads(line)
        if facts.pop("key") != key and key is not None:
            raise ValueError(f"{path} has the results of another tree: name another file")
        found[facts["id"]] = Result(**facts)
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """The tests that one mutant is tried against, in their order, with the seconds that each takes without it."""

    seconds: dict[str, float] = field(default_factory=dict)
    left_out: int = 0


def _tried(
    mutant: Mutant, place: Place | None, copy: Copy, forks: Forks, chosen: Choice, limits: Limits
) -> Result:
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
    ended = _executed(place, copy, forks, list(chosen.seconds), limits.of(sum(chosen.seconds.values())))
    return replace(result, **ended)


def _executed(place: Place, copy: Copy, forks: Forks, names: list[str], limit: float) -> dict[str, Any]:
    """What a result says of the mutant when these tests have run."""
    began = time.monotonic()
    file = place.statement.file
    source = (copy.folder / file).read_text(encoding="utf-8")
    restore = copy.put(file, replaced(source, place.statement, place.after))
    try:
        outcome = forks.run(list(dict.fromkeys(name.partition("::")[0] for name in names)), names, limit)
    finally:
        restore()
    ended: dict[str, Any] = {"seconds": round(time.monotonic() - began, 2)}
    for test, said in outcome.failed.items():
        return ended | {"result": "killed", "why": "failed", "test": test, "said": said}
    if outcome.timed_out:
        return ended | {"result": "killed", "why": "timeout", "test": next(reversed(outcome.numbers), "")}
    if outcome.code not in (0, 5):  # pytest's "passed" and "no tests"
        return ended | {"result": "killed", "why": f"exit code {outcome.code}"}
    return ended | {"result": "survived", "why": "passed"}


def choose(id: str, place: Place, reached: Sequence[Reached], most: float) -> Choice:
    """Choose the tests that a mutant is tried against.

    First those that reach it, file by file, the file that is named like the mutated one before all others; then the rest
    of the same files, as a value that one test computes may be what later ones look at. They take `most` seconds at most,
    where no single one takes longer.
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
    for way in ways:
        for name, seconds in way.items():
            if spent + seconds <= most or (not chosen and seconds <= 3 * most):
                chosen[name] = seconds
                spent += seconds
    return Choice(chosen, sum(name not in chosen for name in ways[0]))


def _distance(one: Reached, id: str, place: Place) -> tuple[int, float]:
    """Tests named like the file first, then those in a folder named like its folder, then others; quick ones before slow."""
    source, test = Path(place.statement.file), Path(one.file)
    stem = test.stem.removeprefix("test_")
    cost = sum(seconds for name, seconds in one.seconds.items() if id in one.hits.get(name, ()))
    if source.parent.name not in test.parts:
        return 3, cost
    return (0 if stem == source.stem else 1 if stem in source.stem or source.stem in stem else 2), cost


def _tried_slowly(mutant: Mutant, place: Place, copy: Copy, forks: Forks, before: Result) -> Result:
    """The same mutant tried against a file of whole commands, where this tree has it."""
    name = f"test_{END_TO_END[mutant.area]}.py"
    tests = copy.folder / "tests"
    files = [str(path.relative_to(copy.folder)) for path in sorted(tests.rglob(name)) if "e2e" in path.parts]
    seconds = _passing(forks, files[0]) if files else {}
    if not seconds:
        return replace(before, slow=True)
    ended = _executed(place, copy, forks, list(seconds), 60 + 4 * sum(seconds.values()))
    return replace(before, slow=True, **ended)


_known_to_pass: dict[str, dict[str, float]] = {}


def _passing(forks: Forks, file: str) -> dict[str, float]:
    """The tests of a file that pass without any mutant, each with its seconds."""
    if file not in _known_to_pass:
        outcome = forks.run([file], None, 3600, slow=True)
        _known_to_pass[file] = {name: outcome.seconds[name] for name in outcome.passed}
    return _known_to_pass[file]
