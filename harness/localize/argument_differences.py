"""What two paired calls are told differently, beyond the values of their tensors."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..tape.tape import GeneratorState, View, leaves
from .storage_flow import Node, Use, layout_of
from .value_links import Links, arguments_of

LAYOUT = "another layout"
"""The same values in another order in memory: the call computes the same, and its kernel may be another one."""


def argument_differences(left: Node, right: Node, links: Links) -> list[str]:
    """Say what differs, empty where nothing does. Both calls are of one op, in place or not."""
    ours, theirs = _by_name(left), _by_name(right)
    found = []
    if left.call.op.rpartition(".")[2] == right.call.op.rpartition(".")[2] and len(ours[""]) != len(
        theirs[""]
    ):
        found.append(f"{len(ours[''])} arguments against {len(theirs[''])}")
    for name in ours:
        for (mine, use), (yours, used) in zip(ours[name], theirs.get(name, []), strict=False):
            if use is not None and used is not None:
                found += _views(use.view, used.view, relaid=_is_relaid(use, used, links))
                if not links.are_linked(use.value, used.value):
                    found.append("reads another tensor")
            else:
                found += _plain(mine, yours)
    return list(dict.fromkeys([*found, *_given_once(ours, theirs)]))


Arguments = dict[str, list[tuple[Any, Use | None]]]


def _by_name(node: Node) -> Arguments:
    """What a call takes, by keyword; under "" what has none."""
    flat = iter(arguments_of(node))
    call = node.call
    found = {"": [next(flat) for _ in leaves(call.arguments)]}
    return found | {name: [next(flat) for _ in leaves(value)] for name, value in call.keywords.items()}


def _given_once(ours: Arguments, theirs: Arguments) -> list[str]:
    found = []
    for name in sorted(ours.keys() ^ theirs.keys()):
        values = [value for value, use in (ours if name in ours else theirs)[name] if use is None]
        shown = f" ({', '.join(map(_shown, values))})" if values else ""
        found.append(f"only {'the reference' if name in ours else 'the other mode'} is given {name}{shown}")
    return found


def draws_differ(left: Node, right: Node) -> bool:
    """Whether two random calls draw from other states of their generators, or only one draws."""
    ours, theirs = left.call.draw, right.call.draw
    if ours is None or theirs is None:
        return (ours is None) != (theirs is None)
    states = [(one.state, two.state) for one, two in zip(ours.states, theirs.states, strict=False)]
    return len(ours.states) != len(theirs.states) or any(not torch.equal(*pair) for pair in states)


def _views(mine: View, yours: View, *, relaid: bool) -> list[str]:
    if mine.size != yours.size:
        return [f"shape {list(mine.size)} against {list(yours.size)}"]
    if mine.dtype != yours.dtype:
        return [f"{_name(mine.dtype)} against {_name(yours.dtype)}"]
    if (mine.offset, mine.stride) == (yours.offset, yours.stride):
        return []
    return [LAYOUT if relaid else "another layout or part of a tensor"]


def _is_relaid(mine: Use, yours: Use, links: Links) -> bool:
    """Whether the views show the contents as they stand for each other, each in its own layout."""
    link = links.of["a"].get(mine.value)
    return (
        link is not None
        and link.value == yours.value
        and layout_of(link.mine) == layout_of(mine.view)
        and layout_of(link.theirs) == layout_of(yours.view)
    )


def _plain(mine: Any, yours: Any) -> list[str]:
    if isinstance(mine, View) or isinstance(yours, View):
        return ["a number against a tensor"]
    if isinstance(mine, GeneratorState) and isinstance(yours, GeneratorState):
        return [] if torch.equal(mine.state, yours.state) else ["the generator is at another state"]
    if mine == yours or (isinstance(mine, float) and isinstance(yours, float) and _same(mine, yours)):
        return []
    return [f"{_shown(mine)} against {_shown(yours)}"]


def _same(mine: float, yours: float) -> bool:
    return mine == yours or (math.isnan(mine) and math.isnan(yours))


def _shown(value: Any) -> str:
    return (
        f"{value:.6g}"
        if isinstance(value, float)
        else _name(value)
        if isinstance(value, torch.dtype)
        else str(value)
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
