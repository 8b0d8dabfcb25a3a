"""Ops that a script or one of its libraries defines, registered in a process that has not executed the script.

Such a process knows only the schemas of the ops. It has no kernels for them: only the script's own process can compute
them.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from .dispatching import registered_operation
from .operators import schema_of

TORCHS = ("aten", "prims")
"""Namespaces that exist in every process."""

NAME = re.compile(r"(\w+)\.(\w+)\.(\w+)")

_libraries: dict[str, torch.library.Library] = {}


def own_schema(name: str) -> str | None:
    """Return the schema, as text, of a registered op (`mine.attend.default`) that is not torch's."""
    operation = None if name.partition(".")[0] in TORCHS else registered_operation(name)
    return None if operation is None else str(schema_of(operation))


def define_without_kernel(name: str, schema: str) -> None:
    """Register an op that this process has not defined. Raises ValueError for a wrong name or schema."""
    parts = NAME.fullmatch(name)
    if parts is None or parts[1] in TORCHS or registered_operation(name) is not None:
        raise ValueError(f"{name!r} is not an op that a script defines")
    namespace, op, overload = parts.groups()
    full = op if overload == "default" else f"{op}.{overload}"
    prefix, _, signature = schema.partition("(")
    if prefix != f"{namespace}::{full}":
        raise ValueError(f"{schema!r} is not a schema of {name}")
    library = torch.library.Library(namespace, "FRAGMENT")
    try:
        library.define(f"{full}({signature}")
    except RuntimeError as error:  # the parser's message has several lines
        raise ValueError(f"{schema!r} is not a schema") from error
    _libraries[name] = library  # the op exists as long as its library


def has_kernel(operation: Any) -> bool:
    """Return whether this process can execute an op."""
    return f"{operation.namespace}.{operation.__name__}" not in _libraries
