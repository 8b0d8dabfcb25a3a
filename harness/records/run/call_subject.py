"""The subject of a run that makes calls instead of training: a function or a module, and the inputs of its calls.

    numdrift check issue.py                     the calls of what issue.py compiles
    numdrift check model.py:Block               calls of a module, with the inputs that model.py makes
    numdrift check ops.py:scaled --inputs "x=randn(4, 8), 2"
    numdrift check --ops "^tanh$|log"           each op of torch, with samples of its test suite

A run of a training has no such subject: its subject is the script. Each call is a step of the run.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError, nearest

MODEL, MAKERS = "Model", ("inputs", "get_inputs")
"""The class in a file of KernelBench, and the names of functions that make the inputs of a call."""

TIMES = 2
"""The number of times that each call is made, one after the other: the second is the control of the first."""


@dataclass(frozen=True, slots=True)
class CallSubject:
    """Calls of a function.

    function: the function's or class's name in the script, or "" for the calls of what the script compiles
    inputs: the inputs in the language of `input_language`, or "" for those that the script makes
    saved: the path of a file of tensors that torch has saved, or ""
    seeds: the number of sets of inputs, each from its own seed
    edges: whether special values and shapes are called too
    gradients: whether gradients are computed
    op: the name of an op, which is called with samples of PyTorch's test suite; then `seeds` is the number of samples
    only: the number of the one call that is made, None for all calls
    traced: whether the ops of that call and of those before it are written to the file TRACED in the journal's folder
    """

    function: str = ""
    inputs: str = ""
    saved: str = ""
    seeds: int = 1
    edges: bool = False
    gradients: bool = True
    op: str = ""
    only: int | None = None
    traced: bool = False


def target_of(text: str) -> tuple[Path, str]:
    """Return the file and the name of a target such as `ops.py:scaled`; the name is "" if there is none.

    A file with a class `Model` and a function `get_inputs`, as in KernelBench, has the target `Model`. Raises
    UsageError if the file is missing, or has no function or class of that name.
    """
    file, colon, name = text.rpartition(":")
    path = Path(file if colon else text)
    if colon and not path.exists() and Path(text).exists():
        path, name = Path(text), ""
    elif not colon:
        name = ""
    defined = _defined_in(path)
    if colon and not name:
        raise UsageError(
            f"{text} names no function; write {path}:NAME, with one of {', '.join(defined) or 'its names'}"
        )
    if name and name.partition(".")[0] not in defined:
        hint = nearest(name, defined) if defined else "the file defines no function or class"
        raise UsageError(f"{path} has no function or class {name!r}; {hint}")
    if not name and MODEL in defined and "get_inputs" in defined:
        return path, MODEL
    return path, name


def _defined_in(path: Path) -> Sequence[str]:
    """Return the names that the top level of a file gives to something. Raises UsageError for an unreadable file."""
    try:
        tree = ast.parse(path.read_bytes())
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; give a Python file in it") from None
    except OSError as error:
        raise UsageError(
            f"there is no file {path} ({error.strerror}); give a Python file, as in ops.py:scaled"
        ) from None
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not a Python program ({error}); give a Python file, as in ops.py:scaled") from None
    names = dict[str, None]()
    for node in _statements(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0]: None for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id: None for target in node.targets if isinstance(target, ast.Name)}
    return list(names)


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module, including those within `if` and `try`."""
    found = list(body)
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            found += _statements([*node.body, *getattr(node, "orelse", [])])
            found += _statements([statement for handler in getattr(node, "handlers", []) for statement in handler.body])
    return found


# The facts of a call that the journal has, beside the values that the run records.

OUTPUT, GRADIENT, WRITTEN = "output", "grad_", "written_"
"""The beginnings of the names of a call's results: an output, the gradient of an input, an input that it wrote to."""

TRACED = "traced_calls.pt"

CALLED = "called"
"""The journal's event for a call. Its fields are those of `CallFacts`."""


@dataclass(frozen=True, slots=True)
class ResultFacts:
    """A tensor that a call returned.

    stride: the strides; empty where the device has none
    alias: the input or the earlier result whose memory it shares, or ""
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    alias: str = ""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """A call and what it did beside computing values.

    step: its step in the run
    label: the call in words, such as `seed 0` or `issue.py:12`
    raised: the error that it raised, or ""
    results: the tensors that it returned
    mutated: the inputs that it wrote to
    sees_memory: whether aliases and writes to inputs can be seen on the mode's device
    draws: whether it drew from torch's generator of random numbers
    """

    step: int
    label: str = ""
    raised: str = ""
    results: tuple[ResultFacts, ...] = ()
    mutated: tuple[str, ...] = ()
    sees_memory: bool = True
    draws: bool = False
