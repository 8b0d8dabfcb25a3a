"""The default interpreter of mode `xla`, and of the modes that run with it: the Python of .venv-xla.

torch_xla loads only with the torch that it was built for, so it has its own environment (`scripts/xla`). Modes that are
compared with each other run in one interpreter unless they name others: runs with two versions of torch differ in more
than the mode.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UsageError
from ..records.modes.mode_spec import ModeSpec
from ..records.run.interpreters import are_two, difference_sentence, differences
from .checked_interpreter import check_interpreter
from .guest_process import PACKAGE, interpreter
from .probed_interpreters import probed

NAME = ".venv-xla"
PYTHON = Path(NAME, "bin/python")


@dataclass(frozen=True, slots=True)
class Interpreters:
    """The modes with their interpreters, and sentences about the interpreters."""

    modes: Sequence[ModeSpec]
    sentences: Sequence[str] = ()


def xla_python() -> Path | None:
    """Return the Python of the .venv-xla in this folder, beside numdrift's own environment, or beside its sources."""
    for folder in (Path.cwd(), Path(sys.prefix).parent, PACKAGE.parents[1]):
        if (folder / PYTHON).exists():
            return folder / PYTHON
    return None


def is_xla_here() -> bool:
    """Check whether numdrift's own Python has torch_xla."""
    return importlib.util.find_spec("torch_xla") is not None


def in_their_interpreters(modes: Sequence[ModeSpec], *, numpy: bool = False) -> Interpreters:
    """Assign the interpreter of .venv-xla to the modes that name none, if one of these modes is `xla`.

    If the modes have several interpreters, the differences between these are reported; the NumPy version is included if
    `numpy` is true (for a script that mentions it). Raises UsageError if there is no .venv-xla, or if an interpreter
    cannot be used.
    """
    asking = [spec for spec in modes if spec.capabilities.package]
    if not asking or is_xla_here():
        several = len({interpreter(spec) for spec in modes}) > 1
        return Interpreters(modes, _versions(modes, (), numpy=numpy) if several else ())
    if all(spec.python is not None for spec in asking):
        return Interpreters(modes, _versions(modes, (), numpy=numpy))
    python = xla_python()
    if python is None:
        name = next(spec.name for spec in asking if spec.python is None)
        raise UsageError(
            f"mode {name!r}: torch_xla is not installed alongside torch {importlib.metadata.version('torch')}, and "
            f"there is no {NAME} here or beside numdrift's environment; create one with `bash scripts/xla`, or give "
            "the mode python=/path/to/its/python"
        )
    moved = [replace(spec, python=str(python)) if spec.python is None else spec for spec in modes]
    moved_names = [spec.name for spec, before in zip(moved, modes, strict=True) if spec is not before]
    return Interpreters(moved, _versions(moved, moved_names, numpy=numpy))


def _versions(modes: Sequence[ModeSpec], moved_names: Sequence[str], *, numpy: bool) -> list[str]:
    """Return sentences about the interpreters of the modes.

    They say which interpreter runs which modes, how the interpreters differ, and how to interpret the findings.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for spec in modes:
        installed = check_interpreter(spec) or {"torch": importlib.metadata.version("torch")}
        groups.setdefault((spec.python or sys.executable, _versions_in_words(installed)), []).append(spec.name)
    own = importlib.metadata.version("torch")
    is_own = any(versions.partition(",")[0] == f"torch {own}" for _, versions in groups)
    sentences = []
    for (python, versions), names in groups.items():
        text = f"{_listed(names)} run{'s' if len(names) == 1 else ''} in {_shown(python)}: {versions}"
        if set(names) & set(moved_names) and not is_own:
            text += f" (numdrift's own Python has torch {own}; to choose another, add python= to a mode)"
        sentences.append(text)
    alike = len({str(replace(spec, name=spec.base, python=None)) for spec in modes}) == 1
    return [*sentences, *_differing(groups, alike=alike, numpy=numpy)] if len(groups) > 1 else sentences


def _differing(groups: Mapping[tuple[str, str], Sequence[str]], *, alike: bool, numpy: bool) -> list[str]:
    """Return sentences on how the first of several interpreters differs from each of the others, and on the possible
    cause of a drift.

    `alike` is true if the modes differ in nothing but their interpreter.
    """
    (reference, *further), labels = (
        probed([python for python, _ in groups]),
        [_listed(names) for names in groups.values()],
    )
    sentences = []
    for label, installed in zip(labels[1:], further, strict=True):
        phrases = differences(reference, installed, () if numpy else ("numpy",))
        if are_two(reference, installed):
            sentences.append(difference_sentence(labels[0], label, phrases))
    if alike and sentences:
        sentences.append("the modes are otherwise the same, so a difference comes from the version")
    elif sentences or len({versions for _, versions in groups}) > 1:
        sentences.append(
            "so a difference may come from the version, not the mode; to find out whether the version or the mode is "
            "the cause, run the reference in the same interpreter"
        )
    return sentences


def described(spec: ModeSpec) -> str:
    """Describe the interpreter of a mode and its packages; return "" for numdrift's own. Raises UsageError."""
    return "" if spec.python is None else f"{_shown(spec.python)}: {_versions_in_words(check_interpreter(spec))}"


def _versions_in_words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _listed(names: Sequence[str]) -> str:
    *leading, last = names
    return f"{', '.join(leading)} and {last}" if leading else last


def _shown(python: str) -> str:
    """Return the path relative to the current folder if it is inside that folder, otherwise unchanged."""
    path = Path(python)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else python
