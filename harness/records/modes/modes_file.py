"""Modes in a TOML file, for those that are too long for a command line.

[before]
base = "cpu"
git = "HEAD~1"

[four]
base = "cpu"
"args+" = ["--accum", "4"]
env.OMP_PLACES = "cores"
kernel = { tanh_backward = "fma" }
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..toml_file import read_toml
from .script_words import ARGS, MORE_ARGS

BASE = "base"


def modes_in_file(path: Path) -> list[str]:
    """Return the modes of a file in the mode grammar, in the order of the file.

    Each table is a mode, with the name of the table. A list is the words of the script's arguments, and a table within
    a mode has the entries of a dotted key. Raises UsageError.
    """
    content = read_toml(path)
    if not content:
        raise UsageError(f'{path} has no mode; a mode is a table, such as [before] with base = "cpu"')
    return [_in_grammar(path, name, keys) for name, keys in content.items()]


def _in_grammar(path: Path, name: str, keys: Any) -> str:
    if not isinstance(keys, Mapping):
        raise UsageError(f'{path}: {name!r} is not a mode; a mode is a table, such as [{name}] with base = "cpu"')
    if not isinstance(keys.get(BASE), str):
        raise UsageError(f'{path}: the mode {name!r} has no base; write base = "cpu", for example')
    pairs = [f"{name}={keys[BASE]}"]
    for key, value in keys.items():
        if key != BASE:
            pairs += [f"{stated}={text}" for stated, text in _texts(path, name, key, value)]
    return ",".join(pairs)


def _quoted(word: str) -> str:
    """Quote a word of the script's arguments as for a shell, and if it has a comma, which would end the arguments."""
    return shlex.quote(word) if "," not in word else "'" + word.replace("'", "'\"'\"'") + "'"


def _texts(path: Path, name: str, key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the keys of the grammar and their values that an entry of a mode represents. Raises UsageError."""
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _texts(path, name, f"{key}.{inner}", item)
    elif isinstance(value, list) and key in (ARGS, MORE_ARGS):
        yield key, " ".join(_quoted(str(word)) for word in value)
    elif isinstance(value, bool):
        yield key, "on" if value else "off"
    elif isinstance(value, (str, int, float)):
        if "," in str(value) and key not in (ARGS, MORE_ARGS):
            raise UsageError(
                f"{path}: {key} of the mode {name!r} has a comma, which only the script's arguments may have"
            )
        yield key, str(value)
    else:
        raise UsageError(f"{path}: {key} of the mode {name!r} is a {type(value).__name__}; write a text or a number")
