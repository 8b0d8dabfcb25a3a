"""The registry of all names of torch and other libraries that numdrift replaces in this process, with their owners.

A name has one owner, or several owners that wrap it in the order in which they came:

    with Patches("the script's autocast") as patches:      # a failure in here leaves nothing patched
        patches.replace(torch.amp, "custom_fwd", hook)      # AlreadyPatched if it has an owner
        patches.wrap(torch, "Generator", lambda before: shifted(before))
    ...
    patches.undo()                                          # in reverse order
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from ..errors import AlreadyPatched

Undo = Callable[[], None]
Make = Callable[[Any], Any]
"""Returns the replacement of a name; called with the former value."""

ABSENT = object()


@dataclass(slots=True)
class _Layer:
    """One owner's value for a name; without `make`, the owner is exclusive."""

    owner: str
    make: Make | None
    value: Any


@dataclass(slots=True)
class _Name:
    """A replaced name.

    own: the value in the holder itself, ABSENT if a class only inherits it
    read_value: the value that reading the name returned before any replacement
    """

    holder: Any
    name: str
    own: Any
    read_value: Any
    layers: list[_Layer] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{getattr(self.holder, '__qualname__', None) or self.holder.__name__}.{self.name}"

    def put(self, value: Any) -> None:
        setattr(self.holder, self.name, value)

    def put_back(self) -> None:
        if self.own is not ABSENT:
            self.put(self.own)
        elif self.name in vars(self.holder):
            delattr(self.holder, self.name)


_names: dict[tuple[int, str], _Name] = {}


class Patches:
    """The names that one owner has replaced, until `undo`."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._undo = ExitStack()

    def replace(self, holder: Any, name: str, value: Any) -> None:
        """Put `value` in place of a name that nothing has replaced. Raises AlreadyPatched."""
        self._add(holder, name, None).put(value)

    def claim(self, holder: Any, name: str) -> None:
        """Own a name without replacing it, for an owner that replaces and restores it many times itself.

        Raises AlreadyPatched.
        """
        self._add(holder, name, None)

    def wrap(self, holder: Any, name: str, make: Make) -> None:
        """Put the result of `make` in place of a name, which others may wrap as well.

        Raises AlreadyPatched if the name has an exclusive owner.
        """
        replaced = self._add(holder, name, make)
        replaced.put(replaced.layers[-1].value)

    def also(self, undo: Undo) -> None:
        """Also call `undo` when the patches are undone, at its position in the order."""
        self._undo.callback(undo)

    def undo(self) -> None:
        """Undo everything in reverse order. If one undo fails, the others still run."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.undo()

    def _add(self, holder: Any, name: str, make: Make | None) -> _Name:
        key = (id(holder), name)
        replaced = _names.get(key)
        if replaced is not None and (make is None or replaced.layers[-1].make is None):
            raise AlreadyPatched(str(replaced), self.owner, replaced.layers[-1].owner)
        # Wrap the current value, not the recorded one: the script may have wrapped the name as well.
        current = getattr(holder, name)
        layer = _Layer(self.owner, make, None if make is None else make(current))
        if replaced is None:
            # `own_value` is restored at the end. A class may inherit the name, and a module may create it on access
            # (`__getattr__`). The configurations of torch's compilers are special modules, which keep their settings
            # elsewhere.
            own_value = vars(holder).get(name, ABSENT)
            plain = isinstance(holder, type) or type(holder) is types.ModuleType
            replaced = _names[key] = _Name(
                holder, name, own_value if plain or own_value is not ABSENT else current, current
            )
        replaced.layers.append(layer)
        self._undo.callback(_take_out, replaced, layer)
        return replaced


def _take_out(replaced: _Name, layer: _Layer) -> None:
    at = next(place for place, candidate in enumerate(replaced.layers) if candidate is layer)
    replaced.layers.remove(layer)
    if not replaced.layers:
        del _names[id(replaced.holder), replaced.name]
        replaced.put_back()
        return
    # Later owners have wrapped the removed layer. They wrap again, so that the removed layer is no longer called.
    value = replaced.layers[at - 1].value if at else replaced.read_value
    for later in replaced.layers[at:]:
        assert later.make is not None
        later.value = value = later.make(value)
    replaced.put(value)


def wrapped(owner: str, holder: Any, name: str, make: Make) -> Undo:
    """Wrap one name; return the undo. Raises AlreadyPatched."""
    patches = Patches(owner)
    patches.wrap(holder, name, make)
    return patches.undo


@contextmanager
def lifted(holder: Any, name: str) -> Iterator[None]:
    """Restore, within the context, the value from before any replacement of the name."""
    replaced = _names.get((id(holder), name))
    if replaced is None:
        yield
        return
    current = getattr(holder, name)
    replaced.put_back()
    try:
        yield
    finally:
        replaced.put(current)


def patched_names() -> list[tuple[Any, str]]:
    """Return the names that are now replaced or claimed, with the holder of each."""
    return [(replaced.holder, replaced.name) for replaced in _names.values()]
