"""What the options of `numdrift snapshot take` choose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import UsageError, nearest
from ...observers.snapshots.snapshot_choice import Choice
from ...records.execution_facts import KEYWORDS, MIB
from ...records.step_selection import StepSelection


def choice_of(options: dict[str, Any]) -> Choice:
    """What the options ask for. Raises UsageError."""
    on = options["on"] or ""
    return Choice(
        steps=_selection("--steps", options["steps"]),
        executions=_selection("--executions", options["executions"]),
        names=tuple(options["graphs"]),
        ranks=StepSelection() if options["ranks"] == "all" else _ranks(options["ranks"]),
        what=_words(options["what"]),
        on=on,
        callback=_callback(options["callback"]),
        stops=options["then"] == "stop" or (bool(on) and options["then"] is None),
        limit_size=None if options["limit_size"] is None else int(options["limit_size"] * MIB),
        limit_count=options["limit_count"],
    )


def _selection(option: str, text: str | None) -> StepSelection | None:
    if text is None:
        return None
    if not text.strip():
        raise UsageError(f"{option} names nothing; counting begins with 0, as in 0,5,10-19")
    try:
        return StepSelection.parse(text)
    except UsageError as error:
        raise UsageError(str(error).replace("--steps", option, 1)) from None


def _ranks(text: str) -> StepSelection:
    found = _selection("--rank", text)
    assert found is not None
    return found


def _words(text: str) -> tuple[str, ...]:
    words = text.split()
    wrong = next((one for one in words if one not in KEYWORDS), None)
    if wrong is not None or not words:
        raise UsageError(f'--what {text!r}: the words are inputs and outputs, as in --what "inputs outputs"')
    return tuple(one for one in KEYWORDS if one in words)


def _callback(text: str | None) -> str:
    if text is None:
        return ""
    path, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(f"--callback {text!r} is not FILE.py:FUNCTION")
    if not Path(path).is_file():
        raise UsageError(f"--callback {text!r}: there is no file {path}")
    _require_name(text, Path(path), name)
    return f"{Path(path).absolute()}:{name}"


def _require_name(text: str, path: Path, name: str) -> None:
    """Raise UsageError for a file that cannot have the name; it is not executed here."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"--callback {text!r}: {path} is no Python: {error}") from None
    found = set(_names_in(tree))
    if name not in found and "*" not in found:
        known = f"; {nearest(name, found)}" if found else ""
        raise UsageError(f"--callback {text!r}: {path} has no function {name!r}{known}")


def _names_in(tree: ast.Module) -> Iterator[str]:
    """The names that a file gives to something, anywhere; `*` where it takes those of another file."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
