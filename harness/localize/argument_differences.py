"""What two calls that stand for each other are told differently, beyond the values of their tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..tape.list_calls import PREFIX
from ..tape.tape import GeneratorState, View, leaves, views_in
from ..torch_private.operators import argument_names
from .storage_flow import FlowNode, Use, layout_of
from .value_links import Links, are_folded, arguments_of, common_reads, is_turned_product

LAYOUT = "another layout"
"""The same values in another order in memory: the call computes the same, and its kernel may be another one."""

PART = "another layout or part of a tensor"

TURNED = "computes the transpose of the product, from both transposed and exchanged"
"""Another order of the same sums: the kernel is the same one for other sizes and strides."""

FOLDED = "takes the same elements in other dimensions"
"""A sum over the first two of three dimensions is one over the first of two: the kernel is that for other sizes."""

SUMS = ("sum", "mean")

NAMELESS = ("self", "other")
"""Arguments of schemas whose names say nothing: `mul(self, other)`."""

GENERATOR = "the generator is at another state"


def argument_differences(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """Say what differs, empty where nothing does. Both calls are of one op, in place or not, or of one that compilers
    have for it, which may take its arguments in another order."""
    if is_turned_product(left, right, links):
        return [TURNED]
    if is_folded_sum(left, right, links):
        return [FOLDED]
    if left.call.name.startswith(PREFIX) != right.call.name.startswith(PREFIX):
        return _of_list(left, right, links)
    if left.call.name.strip("_") != right.call.name.strip("_"):
        return _of_other_op(left, right, links)
    ours, theirs = _by_name(left), _by_name(right)
    found = []
    if left.call.op.rpartition(".")[2] == right.call.op.rpartition(".")[2] and len(ours[""]) != len(theirs[""]):
        found.append(f"{len(ours[''])} arguments against {len(theirs[''])}")
    called = _positions(left)
    for name in ours:
        for place, ((mine, use), (yours, used)) in enumerate(zip(ours[name], theirs.get(name, []), strict=False)):
            if use is None or used is None:
                found += [_called(name or called[place], said) for said in _plain(mine, yours)]
                continue
            # Whether the views show the contents as they stand for each other, each in its own layout
            link = links.of["a"].get(use.value)
            is_relaid = (
                link is not None
                and link.value == used.value
                and layout_of(link.mine) == layout_of(use.view)
                and layout_of(link.theirs) == layout_of(used.view)
            )
            found += _views(use.view, used.view, relaid=is_relaid)
            if not links.are_linked(use.value, used.value):
                found.append("reads another tensor")
    for name in sorted(ours.keys() ^ theirs.keys()):
        values = [value for value, use in (ours if name in ours else theirs)[name] if use is None]
        shown = f" ({', '.join(map(plain_text, values))})" if values else ""
        found.append(f"only {'the reference' if name in ours else 'the other mode'} is given {name}{shown}")
    return list(dict.fromkeys(found))


def _of_list(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """What an op on a list of one tensor and the op itself are told differently: arguments go by their order in the
    schemas, defaults included.

    _foreach_addcdiv_([x], [t], [u], 0.1)   addcdiv_(x, t, u, value=0.1)
    """
    found = []
    name_of = [name for name, _ in argument_names(right.execution.operation)]
    for name, (mine, use), (yours, used) in zip(name_of, _in_order(left), _in_order(right), strict=False):
        if use is None or used is None:
            found += [_called(name, said) for said in _plain(mine, yours)]
            continue
        found += _views(use.view, used.view, relaid=True)
        if not links.are_linked(use.value, used.value):
            found.append("reads another tensor")
    return list(dict.fromkeys(found))


def _in_order(node: FlowNode) -> list[tuple[Any, Use | None]]:
    """What a call takes in the order of its schema, a list of one tensor as that tensor."""
    uses = dict(zip(map(id, views_in(node.call)), node.reads, strict=True))
    schema = argument_names(node.execution.operation)
    given = dict(zip((name for name, _ in schema), node.call.arguments, strict=False)) | dict(node.call.keywords)
    values = [given.get(name, default) for name, default in schema]
    values = [value[0] if isinstance(value, tuple) and len(value) == 1 else value for value in values]
    return [(value, uses.get(id(value))) for value in values]


def is_folded_sum(left: FlowNode, right: FlowNode, links: Links) -> bool:
    """Whether two sums are over the same elements of one tensor, which one side sees in fewer dimensions: their results
    have as many elements, in the same order."""
    if left.call.op != right.call.op or left.call.name not in SUMS:
        return False
    if not (len(left.reads) == len(right.reads) == len(left.made) == len(right.made) == 1):
        return False
    taken = left.reads[0], right.reads[0]
    given = left.made[0].view, right.made[0].view
    sizes = {math.prod(view.size) for view in given}
    return (
        links.are_linked(*(one.value for one in taken))
        and taken[0].view.size != taken[1].view.size
        and are_folded(*(one.view for one in taken))
        and len(sizes) == 1
        and given[0].dtype == given[1].dtype
    )


def _of_other_op(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """What calls of two ops for the same are told differently: tensors at the same places, and numbers by their names.

    max_pool2d_with_indices(x, [2, 2], [2, 2])                          its other arguments are defaults
    _low_memory_max_pool_with_offsets(x, [2, 2], [2, 2], 0, 1, False)   has none
    """
    found = []
    for mine, yours in common_reads(left, right):
        found += [] if links.are_linked(mine.value, yours.value) else ["reads another tensor"]
    ours, theirs = _numbers(left), _numbers(right)
    for name in ours.keys() & theirs.keys():
        few, many = sorted((ours[name], theirs[name]), key=len)
        if few and many != few * (len(many) // len(few)):  # 2 for [2, 2] is the same
            found.append(f"{name}: {ours[name]} against {theirs[name]}")
    return list(dict.fromkeys(found))


def _numbers(node: FlowNode) -> dict[str, list[Any]]:
    """What a call is told but tensors, by the names of its schema, defaults included."""
    schema = argument_names(node.execution.operation)
    told = dict(zip((name for name, _ in schema), node.call.arguments, strict=False)) | dict(node.call.keywords)
    found = {}
    for name, default in schema:
        flat = [leaf for leaf in leaves([told.get(name, default)]) if leaf is not None]
        if not any(isinstance(leaf, View) for leaf in flat):
            found[name] = flat
    return found


def epsilon_difference(ours: Sequence[FlowNode], theirs: Sequence[FlowNode]) -> list[str]:
    """Of a norm that one side has taken apart: in its parts epsilon is what is added to the variance.

    native_layer_norm(x, [16], w, b, 1e-05)     var_mean(x), add(var, 0.001), rsqrt, ...      "eps: 1e-05 against 0.001"
    """
    found: list[list[float]] = []
    for nodes in (ours, theirs):
        if len(nodes) == 1:
            known = _numbers(nodes[0]).get("eps", [])
        else:
            adding = (node.call for node in nodes if node.call.name.strip("_") == "add")
            known = [one for call in adding for one in call.arguments[1:2] if isinstance(one, float)]
        found.append([one for one in known if isinstance(one, float)])
    left, right = found
    if len(left) != 1 or len(right) != 1 or math.isclose(left[0], right[0], rel_tol=1e-6):  # in float32 it is rounded
        return []
    return [f"eps: {plain_text(left[0])} against {plain_text(right[0])}"]


def _by_name(node: FlowNode) -> dict[str, list[tuple[Any, Use | None]]]:
    """What a call takes, by keyword; under "" what has none."""
    flat = iter(arguments_of(node))
    call = node.call
    found = {"": [next(flat) for _ in leaves(call.arguments)]}
    return found | {name: [next(flat) for _ in leaves(value)] for name, value in call.keywords.items()}


def _positions(node: FlowNode) -> list[str]:
    """The names in the schema of the arguments without keyword, one for each leaf of `_by_name`'s under ""."""
    schema = [name for name, _ in argument_names(node.execution.operation)]
    names = [*schema, *[""] * len(node.call.arguments)]
    return [name for name, value in zip(names, node.call.arguments, strict=False) for _ in leaves(value)]


def _called(name: str, said: str) -> str:
    """What differs in an argument, with its name where that says something: `eps: 1e-05 against 0.001`."""
    return f"{name}: {said}" if name and name not in NAMELESS and " against " in said else said


def draws_differ(left: FlowNode, right: FlowNode) -> bool:
    """Whether two random calls draw from other states of their generators, or only one draws."""
    ours, theirs = left.call.draw, right.call.draw
    if ours is None or theirs is None:
        return (ours is None) != (theirs is None)
    states = [(one.state, two.state) for one, two in zip(ours.states, theirs.states, strict=False)]
    return len(ours.states) != len(theirs.states) or any(not torch.equal(*pair) for pair in states)


def drawn_reasons(left: FlowNode, right: FlowNode, reasons: list[str]) -> list[str]:
    """The differences of two calls; where both draw the same numbers and take a tensor in another layout, what that
    means: a kernel draws in the order of the memory, so they come into other elements."""
    if left.call.draw is None or right.call.draw is None:
        return reasons
    pairs = ((ours.view, theirs.view) for ours, theirs in common_reads(left, right))
    laid_out = [
        f"draws into other elements: takes its input with strides {yours.stride}, the reference {mine.stride}"
        for mine, yours in pairs
        if mine.size == yours.size
        and any(a != b for a, b, n in zip(mine.stride, yours.stride, mine.size, strict=True) if n > 1)
    ]
    return [*laid_out[:1], *(one for one in reasons if not laid_out or one not in (LAYOUT, PART))]


def _views(mine: View, yours: View, *, relaid: bool) -> list[str]:
    if mine.size != yours.size:
        return [f"shape {list(mine.size)} against {list(yours.size)}"]
    if mine.dtype != yours.dtype:
        return [f"{_name(mine.dtype)} against {_name(yours.dtype)}"]
    if (mine.offset, mine.stride) == (yours.offset, yours.stride):
        return []
    return [LAYOUT if relaid else PART]


def _plain(mine: Any, yours: Any) -> list[str]:
    if isinstance(mine, View) or isinstance(yours, View):
        return ["a number against a tensor"]
    if isinstance(mine, GeneratorState) and isinstance(yours, GeneratorState):
        return [] if torch.equal(mine.state, yours.state) else [GENERATOR]
    both_nan = all(isinstance(one, float) and math.isnan(one) for one in (mine, yours))
    if mine == yours or both_nan:
        return []
    return [f"{plain_text(mine)} against {plain_text(yours)}"]


def plain_text(value: Any) -> str:
    """An argument that is no tensor, as people write it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return _name(value) if isinstance(value, torch.dtype) else str(value)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
