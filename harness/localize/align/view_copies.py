"""Copies in place of views: a backend without views calls `t_copy` where a backend with views calls `t`.

Links pass from a source to its copy and back:

- The copy is linked to a view of the source's counterpart.
- The source is linked to the counterpart of its copy.
- A value of the other side that is linked to the copy is linked to the source instead, because the source exists
  whether or not the copy is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.tape import View
from ...torch_private.operators import view_behind
from .links import Link, Links
from .storage_flow import FlowValue, Side, StorageFlow, Use, layout_of, other


@dataclass(frozen=True, slots=True, eq=False)
class ViewCopy:
    """A copy in place of a view.

    source: the view that was copied.
    copy: the copy.
    viewed: applies the view op to a given view of the source; returns None if the op cannot return a view of it.
    """

    source: Use
    copy: Use
    viewed: Callable[[View], View | None]


def view_copies(flow: StorageFlow) -> list[ViewCopy]:
    """Return the copies that a side makes in place of views."""
    copies = []
    for node in flow.nodes:
        operation = view_behind(node.execution.operation)
        if operation is not None and node.reads and node.makes and node.makes[0] is not None:
            viewed = functools.partial(_viewed, operation, node.call.arguments[1:])
            copies.append(ViewCopy(node.reads[0], node.makes[0], viewed))
    return copies


def _viewed(operation: Any, arguments: Sequence[Any], view: View) -> View | None:
    """Return the result of a view op on this view; None if the op cannot return a view of it."""
    try:
        flat = torch.empty(view.extent, dtype=view.dtype, device="meta")
        viewed_tensor = operation(flat.as_strided(view.size, view.stride, view.offset), *arguments)
    except (RuntimeError, IndexError, TypeError):
        return None
    return replace(
        view,
        offset=viewed_tensor.storage_offset(),
        size=tuple(viewed_tensor.size()),
        stride=tuple(viewed_tensor.stride()),
    )


def link_copies(links: Links, side: Side, copies: Sequence[ViewCopy]) -> None:
    """Link each copy of a side through its source, then each source through its copy."""
    own_links, far_links = links.of[side], links.of[other(side)]
    for view_copy in copies:
        source, copy = view_copy.source, view_copy.copy
        link = own_links.get(source.value)
        if link is not None and copy.value not in own_links:
            shown_view = _seen_through(link, source.view)
            far_view = None if shown_view is None else view_copy.viewed(shown_view)
            if far_view is not None:
                own_links[copy.value] = Link(copy.view, far_view, link.value)
    # Backwards, since a source may be a copy itself
    for view_copy in reversed(copies):
        source, copy = view_copy.source, view_copy.copy
        link = own_links.get(copy.value)
        if link is None:
            continue
        own_view = view_copy.viewed(source.view)
        if own_view is None:
            continue
        far_view = _seen_through(link, copy.view)
        if source.value not in own_links and far_view is not None:
            own_links[source.value] = Link(own_view, far_view, link.value)
        back = far_links.get(link.value)
        if back is not None and back.value == copy.value and layout_of(back.far_view) == layout_of(copy.view):
            far_links[link.value] = Link(back.own_view, own_view, source.value)


def _seen_through(link: Link, view: View) -> View | None:
    """Return the view of the other side's value that shows the same elements as `view`, a view of this side's value.

    Return None if the link does not determine that view.
    """
    if layout_of(link.own_view) == layout_of(view):
        return link.far_view
    if layout_of(link.own_view) == layout_of(link.far_view):
        return replace(view, slot=link.far_view.slot)
    return None


def before_expansion(use_a: Use, use_b: Use, expanded: Mapping[FlowValue, Use]) -> tuple[Use, Use]:
    """Return the uses to link. If side b copied an expanded view, these are the uses before the expansion.

    An expanded view shows an element more than once, and a hybrid cannot write to it. `expanded` maps the values of
    side b's expanded copies to the sources of the copies.
    """
    source = expanded.get(use_b.value)
    if source is None or use_a.view.size != use_b.view.size or len(source.view.size) != len(use_a.view.size):
        return use_a, use_b
    shown = zip(use_a.view.size, use_a.view.stride, source.view.size, strict=True)
    if not all(n == m or (m == 1 and not step) for n, step, m in shown):
        return use_a, use_b
    plain = replace(use_a.view, size=source.view.size, stride=tuple(step or 1 for step in use_a.view.stride))
    return Use(plain, use_a.value), source
