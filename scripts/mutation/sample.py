"""The sample of mutants: draw it from one tree, and find each mutant in another."""

from __future__ import annotations

import ast
import hashlib
import json
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Literal

from .operators import WEIGHTS, variants
from .statements import Statement, statements
from .tree import source_files

SCHEMA = 1

AREAS = {
    "drift": ("harness/drift", 34),
    "localize": ("harness/localize", 36),
    "worker": ("harness/tape", 34),
    "recorder": ("harness/recorder", 36),
    "swaps": ("kernels/swaps", 30),
    "runs": ("harness/runs", 18),
    "cli": ("harness/cli", 20),
    "investigate": ("harness/investigate", 20),
}
"""The folder of each area, and the number of mutants drawn from it."""

LONGEST = 400
"""The maximum length, in characters, of a statement that is drawn."""

ALIKE = 0.75
"""Two statements of one function whose tokens agree to this degree count as one statement before and after a change."""

TELLING = 40
"""A statement of at least this many characters is identified by its text alone, in whatever function it is."""

Found = Literal["same", "moved", "alike"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One statement with a fault, described by its text and its function.

    file: the file that contained the statement when the sample was drawn.
    """

    id: str
    area: str
    file: str
    function: str
    operator: str
    before: str
    after: str
    previous: str
    next: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a mutant in a tree: the statement that it replaces, and the text that replaces the statement."""

    statement: Statement
    after: str
    found: Found


def draw(root: Path) -> list[Mutant]:
    """Draw the sample of a tree; the same tree gives the same sample."""
    drawn = []
    for area, (folder, wanted) in AREAS.items():
        chosen = _spread(_candidates(root, folder), wanted)
        for number, (statement, operator, after) in enumerate(chosen, 1):
            drawn.append(
                Mutant(
                    id=f"{area}-{number:02}",
                    area=area,
                    file=statement.file,
                    function=statement.function,
                    operator=operator,
                    before=statement.text,
                    after=after,
                    previous=statement.previous,
                    next=statement.next,
                    ordinal=statement.ordinal,
                )
            )
    return drawn


Candidate = tuple[Statement, str, str]


def _candidates(root: Path, folder: str) -> list[Candidate]:
    return [
        (statement, operator, after)
        for file in source_files(root)
        if file.startswith(folder + "/")
        for statement in statements(file, (root / file).read_text(encoding="utf-8"))
        if len(statement.text) <= LONGEST and not statement.function.endswith(("__repr__", "__str__"))
        for operator, after in variants(statement.node)
    ]


def _spread(candidates: list[Candidate], wanted: int) -> list[Candidate]:
    """Choose `wanted` candidates: operators by their weights, at most one per function, no file beyond its share."""
    of_operator: dict[str, list[Candidate]] = defaultdict(list)
    for one in sorted(candidates, key=_chance):
        of_operator[one[1]].append(one)
    files = {one[0].file for one in candidates}
    most = 1 + -(-wanted // len(files))
    turns = [operator for operator, weight in WEIGHTS.items() for _ in range(weight)]
    turns.sort(key=lambda turn: hashlib.sha256(turn.encode()).hexdigest())
    order = cycle(_interleaved(turns))
    chosen: list[Candidate] = []
    in_file: Counter[str] = Counter()
    functions: set[tuple[str, str]] = set()
    misses = 0
    while len(chosen) < wanted and misses < len(turns):
        pool = of_operator[next(order)]
        for one in pool:
            place = one[0].file, one[0].function
            if in_file[one[0].file] < most and place not in functions:
                chosen.append(one)
                pool.remove(one)
                in_file[one[0].file] += 1
                functions.add(place)
                misses = 0
                break
        else:
            misses += 1
    return chosen


def _interleaved(turns: list[str]) -> list[str]:
    """Return the same turns, with those of one operator spread evenly."""
    counts, seen = Counter(turns), Counter[str]()
    placed = []
    for turn in turns:
        seen[turn] += 1
        placed.append(((seen[turn] - 0.5) / counts[turn], turn))
    return [turn for _, turn in sorted(placed)]


def _chance(one: Candidate) -> str:
    statement, operator, after = one
    said = [statement.file, statement.function, statement.text, statement.ordinal, operator, after]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def write(sample: Iterable[Mutant], path: Path) -> None:
    held = {"schema": SCHEMA, "mutants": [asdict(one) for one in sample]}
    path.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> list[Mutant]:
    """Read a sample. Raises ValueError for a file of another schema."""
    held = json.loads(path.read_text(encoding="utf-8"))
    if held["schema"] != SCHEMA:
        raise ValueError(f"{path} has schema {held['schema']}; this version reads schema {SCHEMA}")
    return [Mutant(**one) for one in held["mutants"]]


def find(root: Path, sample: Iterable[Mutant]) -> dict[str, Place]:
    """Return the places of the sample's mutants in this tree; a mutant that is gone has no place."""
    known: dict[str, list[Statement]] = defaultdict(list)
    of_name: dict[str, list[Statement]] = defaultdict(list)
    for file in source_files(root):
        for one in statements(file, (root / file).read_text(encoding="utf-8")):
            known[one.text].append(one)
            of_name[_name(one.file, one.function)].append(one)
    places = {}
    for mutant in sample:
        if place := _exactly(mutant, known[mutant.before]) or _alike(
            mutant, of_name[_name(mutant.file, mutant.function)]
        ):
            places[mutant.id] = place
    return places


def _name(file: str, function: str) -> str:
    """Return the function's own name without leading underscores, or the file's name for code outside functions."""
    return function.rpartition(".")[2].lstrip("_") or Path(file).name


def _is_named(mutant: Mutant, one: Statement) -> bool:
    return _name(one.file, one.function) == _name(mutant.file, mutant.function)


def _nearness(mutant: Mutant, one: Statement) -> tuple[bool, bool, bool, int, bool, bool]:
    neighbours = (mutant.previous, one.previous), (mutant.next, one.next)
    return (
        (one.file, one.function) == (mutant.file, mutant.function),
        one.function == mutant.function,
        _is_named(mutant, one),
        sum(bool(was) and was == now for was, now in neighbours),
        Path(one.file).name == Path(mutant.file).name,
        one.ordinal == mutant.ordinal,
    )


def _exactly(mutant: Mutant, same: list[Statement]) -> Place | None:
    """Return the statement with this text that is nearest to the mutant's old place, or None if this may be a different
    statement."""
    if not same:
        return None
    best = max(same, key=lambda one: _nearness(mutant, one))
    if (best.file, best.function) == (mutant.file, mutant.function):
        return Place(best, mutant.after, "same")
    named = sum(_is_named(mutant, one) for one in same)
    _, _, is_named, neighbours, *_ = _nearness(mutant, best)
    is_telling = len(mutant.before) >= TELLING
    if neighbours or (is_named and (named == 1 or is_telling)) or (len(same) == 1 and is_telling):
        return Place(best, mutant.after, "moved")
    return None


def _alike(mutant: Mutant, others: list[Statement]) -> Place | None:
    before = _tokens(mutant.before)
    ranked = []
    for one in others:
        likeness = SequenceMatcher(None, before, _tokens(one.text), autojunk=False).ratio()
        if likeness >= ALIKE and type(one.node) is type(_parsed(mutant.before)):
            ranked.append((likeness, _nearness(mutant, one), one))
    for _, _, one in sorted(ranked, key=lambda rank: rank[:2], reverse=True):
        if after := _carried_over(mutant, one.text):
            return Place(one, after, "alike")
    return None


def _carried_over(mutant: Mutant, text: str) -> str | None:
    """Return the statement with the mutant's change applied, or None if it lacks tokens that the change replaces."""
    if mutant.operator == "removed":
        return mutant.after
    before, after, there = _tokens(mutant.before), _tokens(mutant.after), _tokens(text)
    made = [step for step in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if step[0] != "equal"]
    mapped: dict[int, int] = {}
    for i, j, size in SequenceMatcher(None, before, there, autojunk=False).get_matching_blocks():
        mapped |= {i + offset: j + offset for offset in range(size)}
    mapped[len(before)] = len(there)
    for _, begin, end, first, last in reversed(made):
        needed = range(begin, end) if end > begin else (begin,)
        if any(number not in mapped for number in needed):
            return None
        stretch = [mapped[number] for number in needed]
        if stretch != list(range(stretch[0], stretch[0] + len(stretch))):
            return None
        there[stretch[0] : stretch[0] + (end - begin)] = after[first:last]
    written = " ".join(there)
    try:
        changed = ast.unparse(_parsed(written))
    except SyntaxError:
        return None
    changed = changed.rpartition("\n")[0] if written.endswith(":") else changed
    return changed if changed != text else None


def _parsed(text: str) -> ast.stmt:
    """Parse a statement, even one that is allowed only in a loop or an async function."""
    inside = f"async def _():\n while _:\n  {text}" + (" pass" if text.endswith(":") else "")
    function = ast.parse(inside).body[0]
    assert isinstance(function, ast.AsyncFunctionDef) and isinstance(function.body[0], ast.While)
    return function.body[0].body[0]


def _tokens(text: str) -> list[str]:
    skipped = tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
    words = tokenize.generate_tokens(StringIO(text).readline)
    return [word.string for word in words if word.type not in skipped]
