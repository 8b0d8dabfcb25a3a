"""Converts records to plain JSON values and back, according to the type hints of their fields.

    @dataclass(frozen=True, slots=True)
    class Trial:
        name: str
        scores: Mapping[str, float] = field(default_factory=dict)
        parts: tuple[Part, ...] = ()

    plain(Trial("a", {"w": math.inf}))      {"name": "a", "scores": {"w": "inf"}, "parts": []}
    read(Trial, {"name": "a"})              Trial(name='a', scores={}, parts=())
    read(Trial, {"name": 3})                Unreadable: name is 3, not text

A class with `to_json` and `from_json` is written and read with these methods. Numbers that JSON lacks become text.
This module does not import torch, because the process of a script uses it too.
"""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import JournalError

Record = TypeVar("Record")
Reader = Callable[[Any], Any]

JSON = "json"
"""The metadata key that says how a field is written to a file and read from it."""

NOT_WRITTEN = {JSON: "never"}
"""Metadata of a field that is never written to a file."""

UNLESS_EMPTY = {JSON: "unless empty"}
"""Metadata of a field that is empty by default, and that is left out of the file if it is empty. If a class's
`EMPTY_IS_LEFT_OUT` is true, all of its fields are treated in this way."""

UNCHECKED = {JSON: "unchecked"}
"""Metadata of a field that is read from the file without a check."""

EMPTY: tuple[Any, ...] = (None, "", (), {})

NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""The numbers that JSON lacks, by their text in a file."""

NAMES = {str: "text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}


class Unreadable(ValueError):
    """Data that does not fit the record: `place` is the field (`pairs[0].step`), `why` describes the error."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(f"{place} {why}" if place else why)
        self.why = why
        self.place = place

    def within(self, outer: str) -> Unreadable:
        """Return the same error with `outer` in front of its place. `outer` is the field or index around the place."""
        dot = "." if self.place and not self.place.startswith("[") else ""
        return Unreadable(self.why, f"{outer}{dot}{self.place}")


def plain(value: Any) -> Any:
    """Return the value as plain values: records as mappings, tuples as lists, keys and non-finite numbers as text."""
    if value is None or (isinstance(value, (str, bool, int)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    return of_fields(value) if is_dataclass(value) else value


def of_fields(record: Any) -> dict[str, object]:
    """Return a record's fields by name, as plain values. A `to_json` that changes only some of them calls this."""
    content = {}
    kind: Any = type(record)
    for name, default in _written(kind):
        value = getattr(record, name)
        if default is MISSING or value != default:
            content[name] = plain(value)
    return content


def schema_first(record: Any) -> dict[str, Any]:
    """Return the fields of a record that has a `schema`, as `of_fields` does: the schema first, for people who read the
    file."""
    content = of_fields(record)
    return {"schema": content.pop("schema"), **content}


@cache
def _written(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the name of each written field, and the empty value that is not written (MISSING if every value is
    written)."""
    sparing = getattr(kind, "EMPTY_IS_LEFT_OUT", False)

    def empty(item: Field[Any]) -> Any:
        default = item.default if item.default_factory is MISSING else item.default_factory()
        # a field that a file lacks gets its default, so an empty value may be left out only if it is the default
        left_out = (
            (sparing or item.metadata.get(JSON) == "unless empty") and default is not MISSING and default in EMPTY
        )
        return default if left_out else MISSING

    return tuple((item.name, empty(item)) for item in fields(kind) if item.metadata.get(JSON) != "never")


def read(kind: type[Record], data: Any) -> Record:
    """Read a record from plain values. Raises Unreadable, which names the wrong field.

    Unknown fields are refused, unless the class's `UNKNOWN_IS_IGNORED` is true.
    """
    hint: Any = kind
    record: Record = _reader(hint)(data)
    return record


@cache
def _reader(hint: Any) -> Reader:
    """Return the function that reads a value of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return lambda data: data
    if origin in (Union, types.UnionType):
        return _one_of(arguments)
    if origin is Literal:
        return lambda data: _checked(data, data in arguments, f"not one of {', '.join(map(str, arguments))}")
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _row([_reader(argument) for argument in arguments])
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _several(_reader(arguments[0]), tuple if origin is tuple else list)
    if hasattr(hint, "from_json"):
        reader: Reader = hint.from_json
        return reader
    if is_dataclass(hint) and isinstance(hint, type):
        return lambda data: read_fields(hint, data)
    if hint is float:
        return _number
    if hint is type(None):
        return lambda data: _checked(data, data is None, "not null")
    if hint in NAMES:
        # no `isinstance`: a bool is an int in Python, but not in the file
        return lambda data: _checked(data, type(data) is hint, f"not {NAMES[hint]}")
    if isinstance(hint, type) and issubclass(hint, (Path, Enum)):
        return hint
    raise TypeError(f"there is no way to read {hint} from JSON")


def read_fields(kind: type[Record], data: Any) -> Record:
    """Read a record field by field. A `from_json` that changes only some fields calls this. Raises Unreadable."""
    if not isinstance(data, Mapping):
        raise Unreadable(f"is {_shown(data)}, not an object")
    shape: Any = kind
    readers, required = _fields(shape)
    values = {}
    for name, value in data.items():
        if name in readers:
            values[name] = _at(name, readers[name], value)
        elif not getattr(kind, "UNKNOWN_IS_IGNORED", False):
            raise Unreadable("is an unknown field", str(name))
    for name in required:
        if name not in values:
            raise Unreadable(f"lacks {name!r}")
    return kind(**values)


@cache
def _fields(kind: type) -> tuple[Mapping[str, Reader], tuple[str, ...]]:
    """Return the reader of each field, and the fields that have no default."""
    hints = get_type_hints(kind)
    items = fields(kind)
    readers = {
        item.name: _reader(Any if item.metadata.get(JSON) == "unchecked" else hints[item.name]) for item in items
    }
    return readers, tuple(item.name for item in items if item.default is item.default_factory is MISSING)


def _at(place: str, reader: Reader, data: Any) -> Any:
    try:
        return reader(data)
    except Unreadable as error:
        raise error.within(place) from None


def _checked(data: Any, holds: bool, why: str) -> Any:
    if not holds:
        raise Unreadable(f"is {_shown(data)}, {why}")
    return data


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _number(data: Any) -> Any:
    if isinstance(data, str) and data in NUMBERS:
        return NUMBERS[data]
    # an int stays an int, so that writing it to a file again gives the same text
    return _checked(data, isinstance(data, (int, float)) and not isinstance(data, bool), "not a number")


def _one_of(kinds: Sequence[Any]) -> Reader:
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]
    optional = type(None) in kinds

    def read_one(data: Any) -> Any:
        if data is None and optional:
            return None
        # if all readers fail, the last one's error is raised: for `str | int`, that the value is not a whole number
        for reader in readers[:-1]:
            try:
                return reader(data)
            except Unreadable:
                continue
        return readers[-1](data)

    return read_one


def _several(reader: Reader, kind: Callable[[list[Any]], Any]) -> Reader:
    def read_several(data: Any) -> Any:
        _checked(data, isinstance(data, (list, tuple)), "not a list")
        return kind([_at(f"[{number}]", reader, item) for number, item in enumerate(data)])

    return read_several


def _row(readers: Sequence[Reader]) -> Reader:
    def read_row(data: Any) -> Any:
        holds = isinstance(data, (list, tuple)) and len(data) == len(readers)
        _checked(data, holds, f"not a list of {len(readers)}")
        return tuple(_at(f"[{at}]", reader, item) for at, (reader, item) in enumerate(zip(readers, data, strict=True)))

    return read_row


def _mapping(key: Any, value: Any) -> Reader:
    reader = _reader(value)

    def read_mapping(data: Any) -> Any:
        _checked(data, isinstance(data, Mapping), "not an object")
        try:
            names = list(map(int, data)) if key is int else list(data)
        except ValueError:
            raise Unreadable(f"is {_shown(data)}, with keys that are not whole numbers") from None
        return {name: _at(str(name), reader, item) for name, item in zip(names, data.values(), strict=True)}

    return read_mapping


def json_text(content: Any, indent: int | None = 2) -> str:
    """Return the content as JSON; NaN and infinities are written as `"nan"`, `"inf"` and `"-inf"`."""
    return json.dumps(plain(content), indent=indent, allow_nan=False) + "\n"


def put(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old content or the new content, never a part of either."""
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_text(text, encoding="utf-8")
    written.replace(path)


@dataclass(frozen=True, slots=True)
class FileForm(Generic[Record]):
    """A kind of file that contains one record and the number of its `schema`.

    `migrations` maps the number of each older schema to the function that converts content to the next schema. `remedy`
    is the advice for an unusable file.
    """

    kind: type[Record]
    schema: int = 1
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    remedy: str = ""

    def read(self, path: Path) -> Record:
        """Read a file. Raises FileNotFoundError, and JournalError if the file is damaged or has an unknown schema."""
        try:
            return self.of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise
        except Unreadable as error:
            raise JournalError(path, f"{error}{f'; {self.remedy}' if self.remedy else ''}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise JournalError(path, f"cannot be read: {error}") from error

    def of(self, content: Any) -> Record:
        """Return the record of a file's content. Raises Unreadable."""
        schema = content.get("schema") if isinstance(content, dict) else None
        oldest = min(self.migrations, default=self.schema)
        if type(schema) is not int or not oldest <= schema <= self.schema:
            knows = f"{oldest} to {self.schema}"
            raise Unreadable(f"has a schema that this version of numdrift cannot read (it reads {knows})")
        content = {name: value for name, value in content.items() if name != "schema"}
        for number in range(schema, self.schema):
            content = self.migrations[number](content)
        try:
            return read(self.kind, content)
        except Unreadable as error:
            raise Unreadable(f"has a missing or unknown field, or a field of the wrong type: {error}") from error
