"""The one registry of the names of torch, and of other libraries, that this process has replaced, and of who
did it.

A name has one owner, or several who wrap it in the order in which they came:

    with Patches("the script's autocast") as patches:      # a failure in here leaves nothing patched
        patches.replace(torch.amp, "custom_fwd", ours)      # AlreadyPatched where somebody else has
        patches.wrap(torch, "Generator", lambda before: shifted(before))
    ...
    patches.undo()                                          # the last one first
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
"""Gives what stands for a name, of what stood for it before."""

ABSENT = object()


@dataclass(slots=True)
class _Layer:
    """What one owner has made of a name. Without `make` the name is the owner's alone."""

    owner: str
    make: Make | None
    value: Any


@dataclass(slots=True)
class _Name:
    """A replaced name: what `holder` itself had under it (nothing, where a class only inherits it), and what
    it gave."""

    holder: Any
    name: str
    own: Any
    given: Any
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
        """Put `value` in place of a name that nobody has replaced. Raises AlreadyPatched."""
        self._add(holder, name, None).put(value)

    def claim(self, holder: Any, name: str) -> None:
        """Own a name without replacing it now: the owner puts and puts back by itself what is to be there,
        often.

        Raises AlreadyPatched.
        """
        self._add(holder, name, None)

    def wrap(self, holder: Any, name: str, make: Make) -> None:
        """Put what `make` gives in place of a name, which others may wrap as well. Raises AlreadyPatched
        where the name is somebody's alone."""
        found = self._add(holder, name, make)
        found.put(found.layers[-1].value)

    def also(self, undo: Undo) -> None:
        """Have `undo` called in its turn."""
        self._undo.callback(undo)

    def undo(self) -> None:
        """Put everything back, the last one first; a failure of one keeps none of the others."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.undo()

    def _add(self, holder: Any, name: str, make: Make | None) -> _Name:
        key = (id(holder), name)
        found = _names.get(key)
        if found is not None and (make is None or found.layers[-1].make is None):
            raise AlreadyPatched(str(found), self.owner, found.layers[-1].owner)
        # What is there now is wrapped, not what we know of: the script may have wrapped the name as well.
        there = getattr(holder, name)
        layer = _Layer(self.owner, make, None if make is None else make(there))
        if found is None:
            # What is put back in the end. A class may inherit the name, a module make it when it is asked
            # (`__getattr__`); the configurations of torch's compilers are modules of a kind of their own, which keep
            # their settings elsewhere.
            own = vars(holder).get(name, ABSENT)
            plain = isinstance(holder, type) or type(holder) is types.ModuleType
            found = _names[key] = _Name(holder, name, own if plain or own is not ABSENT else there, there)
        found.layers.append(layer)
        self._undo.callback(_take_out, found, layer)
        return found


def _take_out(one: _Name, layer: _Layer) -> None:
    at = next(place for place, other in enumerate(one.layers) if other is layer)
    one.layers.remove(layer)
    if not one.layers:
        del _names[id(one.holder), one.name]
        one.put_back()
        return
    # Who came later has wrapped what goes now: wrapped anew, so that nothing of it is called any more.
    value = one.layers[at - 1].value if at else one.given
    for later in one.layers[at:]:
        assert later.make is not None
        later.value = value = later.make(value)
    one.put(value)


def wrapped(owner: str, holder: Any, name: str, make: Make) -> Undo:
    """Wrap one name; gives the undo. Raises AlreadyPatched."""
    patches = Patches(owner)
    patches.wrap(holder, name, make)
    return patches.undo


@contextmanager
def lifted(holder: Any, name: str) -> Iterator[None]:
    """Have in place for a while what was there before anybody replaced the name."""
    found = _names.get((id(holder), name))
    if found is None:
        yield
        return
    there = getattr(holder, name)
    found.put_back()
    try:
        yield
    finally:
        found.put(there)


def patched_names() -> list[tuple[Any, str]]:
    """The names that are replaced or claimed now, with what holds each."""
    return [(one.holder, one.name) for one in _names.values()]
