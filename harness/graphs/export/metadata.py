"""Metadata of ONNX records: pairs of text that Netron lists beside a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 1900
"""Netron 9 shows the first 2,000 characters of a text; what is longer comes in parts."""


def describe(proto: Any, pairs: Mapping[str, object]) -> None:
    """Add the pairs that are not empty to a record's `metadata_props`."""
    for key, value in pairs.items():
        if value is not None and value != "":
            one = proto.metadata_props.add()
            one.key, one.value = clean(key), clean(str(value))


def in_parts(key: str, text: str) -> Iterator[tuple[str, str]]:
    """The text whole under its key, or cut at ends of lines into `key 1/3`, `key 2/3` and so on."""
    parts: list[str] = [""]
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LONGEST):
            piece = line[start : start + LONGEST]
            if parts[-1] and len(parts[-1]) + len(piece) > LONGEST:
                parts.append("")
            parts[-1] += piece
    if len(parts) == 1:
        yield key, text
        return
    yield from ((f"{key} {number}/{len(parts)}", part) for number, part in enumerate(parts, 1))


def clean(text: str) -> str:
    """The text with what UTF-8 cannot hold replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
