"""Find which test reaches which mutant, in one pass over the tests of a tree with probes in the mutants' statements."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import probe
from .running import Forks
from .sample import Place
from .statements import Edit, inserted, probed
from .tree import Copy, Restore, files_of

LONGEST = 3600.0
"""The time limit in seconds for the tests of one file."""


@dataclass(slots=True)
class Reached:
    """The mutants that the tests of one file reach.

    seconds: the time of each test that passed, in the order of the file. Only these tests can kill a mutant.
    hits: the mutants that each test reached; the entry "" has those that the import of the file reached.
    """

    file: str
    seconds: dict[str, float] = field(default_factory=dict)
    hits: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def mutants(self) -> set[str]:
        return {one for found in self.hits.values() for one in found}


def key_of(root: Path, ids: Iterable[str]) -> str:
    """Return a hash of the content of a tree's source files and of the ids of a sample."""
    digest = hashlib.sha256(json.dumps(sorted(ids)).encode())
    for name in files_of(root):
        if name.endswith((".py", ".c", ".toml")) and not name.startswith("scripts/"):
            digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Pass:
    """The data that one pass over the tests needs.

    kept: the file that stores the results of passes. slow: whether the slow tests of a file run too.
    """

    copy: Copy
    forks: Forks
    places: Mapping[str, Place]
    kept: Path
    key: str
    slow: bool = False

    def over(self, files: Sequence[str]) -> list[Reached]:
        """Return the mutants that the tests of each file reach; files with a result in `kept` do not run again."""
        known = _read(self.kept, self.key)
        missing = [file for file in files if file not in known]
        restore = _put_probes(self.copy, self.places) if missing else []
        with self.kept.open("a", encoding="utf-8") as out:
            for number, file in enumerate(missing, 1):
                began = time.monotonic()
                known[file] = self._of_file(file)
                out.write(json.dumps({"key": self.key} | asdict(known[file])) + "\n")
                out.flush()
                spent = time.monotonic() - began
                print(f"probes {number}/{len(missing)} {file} {spent:.1f} s", file=sys.stderr, flush=True)
        for back in restore:
            back()
        return [known[file] for file in files]

    def _of_file(self, file: str) -> Reached:
        folder, ids = self.forks.work / "hits", list(self.places)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        outcome = self.forks.run([file], None, LONGEST, hits=folder, slow=self.slow)
        hits = {}
        for name, written in {"": "import", **outcome.numbers}.items():
            path = folder / str(written)
            if path.exists():
                hits[name] = sorted({ids[int(number)] for number in path.read_text().split()})
        return Reached(file, {name: outcome.seconds[name] for name in outcome.passed}, hits, outcome.failed)


def _read(kept: Path, key: str) -> dict[str, Reached]:
    known = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        facts = json.loads(line)
        if facts.pop("key") == key:
            known[facts["file"]] = Reached(**facts)
    return known


def _put_probes(copy: Copy, places: Mapping[str, Place]) -> list[Restore]:
    of_file: dict[str, list[Edit]] = defaultdict(list)
    for number, place in enumerate(places.values()):
        of_file[place.statement.file] += probed(place.statement, f"{probe.NAME}({number})")
    return [
        copy.put(file, inserted((copy.folder / file).read_text(encoding="utf-8"), edits))
        for file, edits in of_file.items()
    ]
