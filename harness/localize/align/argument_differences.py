"""Differences between the arguments of two corresponding calls, beyond the values of their tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...tape.serving.list_calls import PREFIX
from ...tape.tape import GeneratorState, View, leaves, views_in
from ...torch_private.operators import argument_names
from .links import Links, are_folded, is_turned_product
from .storage_flow import FlowNode, Use, common_reads, layout_of

WIRING = "reads a different tensor"

LAYOUT = "a different layout"
"""The same values in a different order in memory: the call computes the same thing, perhaps with a different kernel."""

PART = "a different layout or part of a tensor"

TURNED = "computes the transpose of the product, with both factors transposed and swapped"
"""The same sums in a different order: the kernel is chosen for different sizes and strides."""

FOLDED = "sums the same elements over different dimensions"
"""A sum over the first two of three dimensions becomes a sum over the first of two, with a kernel for those sizes."""

SUMS = ("sum", "mean")

NAMELESS = ("self", "other")
"""Names of arguments in schemas that carry no meaning, as in `mul(self, other)`."""

GENERATOR = "the generator is in a different state"


def argument_differences(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """Return the differences in words; an empty list if the calls agree.

    Both calls are of the same op, in place or not, or one of them is of a compiler's substitute for that op. The
    substitute may take the arguments in a different order.
    """
    if is_turned_product(left, right, links):
        factors = zip(left.reads, reversed(right.reads), strict=True)
        same = all(links.are_linked(factor.value, turned.value) for factor, turned in factors)
        return [TURNED] if same else [TURNED, WIRING]
    if is_folded_sum(left, right, links):
        return [FOLDED]
    if left.call.name.startswith(PREFIX) != right.call.name.startswith(PREFIX):
        return _of_list(left, right, links)
    if left.call.name.strip("_") != right.call.name.strip("_"):
        return _of_other_op(left, right, links)
    return _of_same_op(left, right, links)


def _of_same_op(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """Compare two calls of one op, argument by argument."""
    left_arguments, right_arguments = _by_name(left), _by_name(right)
    differences = []
    counts = len(left_arguments[""]), len(right_arguments[""])
    if left.call.op.rpartition(".")[2] == right.call.op.rpartition(".")[2] and counts[0] != counts[1]:
        differences.append(f"{counts[0]} arguments against {counts[1]}")
    positional_names = _positions(left)
    for name in left_arguments:
        pairs = zip(left_arguments[name], right_arguments.get(name, []), strict=False)
        for position, ((left_value, left_use), (right_value, right_use)) in enumerate(pairs):
            if left_use is None or right_use is None:
                called = name or positional_names[position]
                differences += [_called(called, text) for text in _plain(left_value, right_value)]
                continue
            # If both views are those of the link, they show the same elements, each in its side's layout.
            link = links.of["a"].get(left_use.value)
            is_relaid = (
                link is not None
                and link.value == right_use.value
                and layout_of(link.own_view) == layout_of(left_use.view)
                and layout_of(link.far_view) == layout_of(right_use.view)
            )
            differences += _of_tensors(left_use, right_use, links, relaid=is_relaid)
    for name in sorted(left_arguments.keys() ^ right_arguments.keys()):
        is_left = name in left_arguments
        values = [value for value, use in (left_arguments if is_left else right_arguments)[name] if use is None]
        shown = f" ({', '.join(map(plain_text, values))})" if values else ""
        differences.append(f"only {'the reference' if is_left else 'the other mode'} passes {name}{shown}")
    return list(dict.fromkeys(differences))


def _of_tensors(left: Use, right: Use, links: Links, *, relaid: bool) -> list[str]:
    """Compare two tensors; `relaid` is True if views in different layouts show the same elements."""
    differences = _views(left.view, right.view, relaid=relaid)
    return differences if links.are_linked(left.value, right.value) else [*differences, WIRING]


def _of_list(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """Compare an op on a list of one tensor with the op itself, argument by argument in the order of their schemas,
    defaults included.

    _foreach_addcdiv_([x], [t], [u], 0.1)   addcdiv_(x, t, u, value=0.1)
    """
    differences = []
    name_of = [name for name, _ in argument_names(right.execution.operation)]
    for name, (left_value, left_use), (right_value, right_use) in zip(
        name_of, _in_order(left), _in_order(right), strict=False
    ):
        if left_use is None or right_use is None:
            differences += [_called(name, text) for text in _plain(left_value, right_value)]
            continue
        differences += _of_tensors(left_use, right_use, links, relaid=True)
    return list(dict.fromkeys(differences))


def _in_order(node: FlowNode) -> list[tuple[Any, Use | None]]:
    """Return the arguments of a call in the order of its schema, with a list of one tensor replaced by the tensor."""
    uses = dict(zip(map(id, views_in(node.call)), node.reads, strict=True))
    values = [
        value[0] if isinstance(value, tuple) and len(value) == 1 else value for value in named_arguments(node).values()
    ]
    return [(value, uses.get(id(value))) for value in values]


def named_arguments(node: FlowNode) -> dict[str, Any]:
    """Return the arguments of a call by their names in the schema, defaults included."""
    schema = argument_names(node.execution.operation)
    arguments = dict(zip((name for name, _ in schema), node.call.arguments, strict=False)) | dict(node.call.keywords)
    return {name: arguments.get(name, default) for name, default in schema}


def is_folded_sum(left: FlowNode, right: FlowNode, links: Links) -> bool:
    """Check whether two sums add the same elements of one tensor, which one side views in fewer dimensions.

    Their results have the same number of elements, in the same order.
    """
    if left.call.op != right.call.op or left.call.name not in SUMS:
        return False
    if not (len(left.reads) == len(right.reads) == len(left.made) == len(right.made) == 1):
        return False
    read_uses = left.reads[0], right.reads[0]
    result_views = left.made[0].view, right.made[0].view
    sizes = {math.prod(view.size) for view in result_views}
    return (
        links.are_linked(*(use.value for use in read_uses))
        and read_uses[0].view.size != read_uses[1].view.size
        and are_folded(*(use.view for use in read_uses))
        and len(sizes) == 1
        and result_views[0].dtype == result_views[1].dtype
    )


def _of_other_op(left: FlowNode, right: FlowNode, links: Links) -> list[str]:
    """Compare calls of two ops that compute the same thing: tensors by their positions, and numbers by their names.

    max_pool2d_with_indices(x, [2, 2], [2, 2])                          its other arguments are defaults
    _low_memory_max_pool_with_offsets(x, [2, 2], [2, 2], 0, 1, False)   has no defaults
    """
    differences = []
    for left_use, right_use in common_reads(left, right):
        differences += [] if links.are_linked(left_use.value, right_use.value) else [WIRING]
    left_numbers, right_numbers = _numbers(left), _numbers(right)
    for name in left_numbers.keys() & right_numbers.keys():
        few, many = sorted((left_numbers[name], right_numbers[name]), key=len)
        if few and many != few * (len(many) // len(few)):  # 2 means [2, 2]
            differences.append(f"{name}: {left_numbers[name]} against {right_numbers[name]}")
    return list(dict.fromkeys(differences))


def _numbers(node: FlowNode) -> dict[str, list[Any]]:
    """Return the arguments of a call that are not tensors, by their names in the schema, defaults included."""
    numbers = {}
    for name, value in named_arguments(node).items():
        flat = [leaf for leaf in leaves([value]) if leaf is not None]
        if not any(isinstance(leaf, View) for leaf in flat):
            numbers[name] = flat
    return numbers


def epsilon_difference(left_nodes: Sequence[FlowNode], right_nodes: Sequence[FlowNode]) -> list[str]:
    """Compare the epsilons of a norm. On a side that has decomposed the norm, epsilon is the number added to the
    variance.

    native_layer_norm(x, [16], w, b, 1e-05)     var_mean(x), add(var, 0.001), rsqrt, ...      "eps: 1e-05 against 0.001"
    """
    epsilons: list[list[float]] = []
    for nodes in (left_nodes, right_nodes):
        if len(nodes) == 1:
            values = _numbers(nodes[0]).get("eps", [])
        else:
            adding = (node.call for node in nodes if node.call.name.strip("_") == "add")
            values = [value for call in adding for value in call.arguments[1:2] if isinstance(value, float)]
        epsilons.append([value for value in values if isinstance(value, float)])
    left, right = epsilons
    if len(left) != 1 or len(right) != 1 or math.isclose(left[0], right[0], rel_tol=1e-6):  # float32 rounds it
        return []
    return [f"eps: {plain_text(left[0])} against {plain_text(right[0])}"]


def _by_name(node: FlowNode) -> dict[str, list[tuple[Any, Use | None]]]:
    """Return the leaves of a call's arguments by keyword; those of positional arguments are under ""."""
    flat = iter(node.arguments)
    call = node.call
    positional = {"": [next(flat) for _ in leaves(call.arguments)]}
    return positional | {name: [next(flat) for _ in leaves(value)] for name, value in call.keywords.items()}


def _positions(node: FlowNode) -> list[str]:
    """Return the schema's names of the positional arguments, one for each leaf under "" in `_by_name`."""
    schema = [name for name, _ in argument_names(node.execution.operation)]
    names = [*schema, *[""] * len(node.call.arguments)]
    return [name for name, value in zip(names, node.call.arguments, strict=False) for _ in leaves(value)]


def _called(name: str, difference: str) -> str:
    """Prefix a difference with the argument's name, unless the name carries no meaning: `eps: 1e-05 against 0.001`."""
    return f"{name}: {difference}" if name and name not in NAMELESS and " against " in difference else difference


def draws_differ(left: FlowNode, right: FlowNode) -> bool:
    """Check whether two calls draw from different states of their generators, or only one of them draws."""
    left_draw, right_draw = left.call.draw, right.call.draw
    if left_draw is None or right_draw is None:
        return (left_draw is None) != (right_draw is None)
    states = [
        (left_state.state, right_state.state)
        for left_state, right_state in zip(left_draw.states, right_draw.states, strict=False)
    ]
    return len(left_draw.states) != len(right_draw.states) or any(not torch.equal(*pair) for pair in states)


def drawn_reasons(left: FlowNode, right: FlowNode, reasons: list[str]) -> list[str]:
    """Return the differences between two calls. If both calls draw, explain a difference in layout.

    A kernel draws in the order of the memory. So if the tensors have different layouts, the same numbers are drawn into
    different elements.
    """
    if left.call.draw is None or right.call.draw is None:
        return reasons
    pairs = ((left_use.view, right_use.view) for left_use, right_use in common_reads(left, right))
    laid_out = [
        f"draws into different elements: its input has strides {right_view.stride}, the reference's {left_view.stride}"
        for left_view, right_view in pairs
        if left_view.size == right_view.size
        and any(a != b for a, b, n in zip(left_view.stride, right_view.stride, left_view.size, strict=True) if n > 1)
    ]
    return [*laid_out[:1], *(reason for reason in reasons if not laid_out or reason not in (LAYOUT, PART))]


def _views(left: View, right: View, *, relaid: bool) -> list[str]:
    if left.size != right.size:
        return [f"shape {list(left.size)} against {list(right.size)}"]
    if left.dtype != right.dtype:
        return [f"{_name(left.dtype)} against {_name(right.dtype)}"]
    if (left.offset, left.stride) == (right.offset, right.stride):
        return []
    return [LAYOUT if relaid else PART]


def _plain(left: Any, right: Any) -> list[str]:
    if isinstance(left, View) or isinstance(right, View):
        return ["a number against a tensor"]
    if isinstance(left, GeneratorState) and isinstance(right, GeneratorState):
        return [] if torch.equal(left.state, right.state) else [GENERATOR]
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (left, right))
    if left == right or both_nan:
        return []
    return [f"{plain_text(left)} against {plain_text(right)}"]


def plain_text(value: Any) -> str:
    """Format an argument that is not a tensor."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return _name(value) if isinstance(value, torch.dtype) else str(value)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
