"""Support in compiled mode: what Inductor's lowering makes of each operator, and which ones it hands to
ATen's kernels."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

from ...errors import NotAvailable
from ...records.backend_work import OperatorCall
from ...torch_private.graph_stages import CALL, number_decomposed_calls, parts_of_op, without_graph_caches
from ...torch_private.inductor_lowering import LoweredNode, watch_lowering
from ..called_operators import ScriptLines, configuration, described_value, tensor_text

PART = "inductor lowering"


@contextmanager
def observe_inductor(script: str, told: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Within the context `told` hears of each operator of a graph that Inductor lowers. Raises what has
    failed in here.

    A graph from a cache was lowered by another process, so no such cache is used.
    """
    lowered = _Lowered(ScriptLines(script), told)
    with ExitStack() as undone:
        undone.callback(without_graph_caches())
        with suppress(NotAvailable):  # each node then stands for an operator of its own
            undone.callback(number_decomposed_calls())
        undone.callback(watch_lowering(lowered.seen, lowered.failed, lowered.ended))
        yield
    if lowered.error is not None:
        raise lowered.error


class _Lowered:
    """Puts the nodes of a graph together again to the operators that they were decomposed from."""

    def __init__(self, lines: ScriptLines, told: Callable[[OperatorCall], None]) -> None:
        self.error: Exception | None = None
        self._lines = lines
        self._told = told
        self._calls: dict[Any, list[LoweredNode]] = {}
        self._done: set[Any] = set()

    def seen(self, lowered: LoweredNode) -> None:
        node = lowered.node
        if node.target is operator.getitem:
            return
        if parts_of_op(node.target) is not None or _original(node) is not None:
            self._calls.setdefault(node.meta.get(CALL, node), []).append(lowered)

    def failed(self, node: torch.fx.Node, error: Exception) -> None:
        lines = str(error).splitlines() or [type(error).__name__]
        failed = LoweredNode(node, "", "", f"its lowering raises {lines[0]}")
        self._try(lambda: self._tell([failed]))

    def ended(self) -> None:
        calls, self._calls = self._calls, {}
        for number, nodes in calls.items():
            computed_again = number in self._done  # in the backward, from what the forward has saved
            if not computed_again or any(one.reason for one in nodes):
                self._done.add(number)
                self._try(functools.partial(self._tell, nodes))

    def _tell(self, nodes: Sequence[LoweredNode]) -> None:
        original = _original(nodes[0].node) or nodes[0].node.target
        reason = next((one.reason for one in nodes if one.reason), "")
        self._told(
            OperatorCall(
                kind_of(original),
                _configuration(original, [one.node for one in nodes]),
                self._lines.of_stack(str(nodes[0].node.meta.get("stack_trace") or "")),
                tuple(_instruction(one) for one in nodes),
                PART if reason else "",
                reason,
                tuple(_instruction(one) for one in nodes if one.reason),
            )
        )

    def _try(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001, the compilation goes on whatever fails here
            self.error = self.error or error


def kind_of(target: Any) -> str:
    """An operator as reports name it: `aten::mul`."""
    parts = parts_of_op(target)
    return str(getattr(target, "__name__", target)) if parts is None else f"{parts[0]}::{parts[1]}"


def _original(node: torch.fx.Node) -> Any:
    """The operator that a node was decomposed from, None where that is not known."""
    found = node.meta.get("original_aten")
    return found if parts_of_op(found) is not None else None


def _configuration(original: Any, nodes: Sequence[torch.fx.Node]) -> str:
    """The arguments of the call; of one that was decomposed the tensors that go into its nodes."""
    if len(nodes) == 1 and str(nodes[0].target) == str(original):  # a copied graph has copies of its overloads
        node = nodes[0]
        value = node.meta.get("val")
        device = value.device.type if isinstance(value, torch.Tensor) else "cpu"
        return configuration(original, _values(nodes[0].args), _values(nodes[0].kwargs), device)
    given = dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in nodes)
    return ", ".join(text for one in given if (text := _text(one)))


def _values(arguments: Any) -> Any:
    """The arguments of a node, nodes as the fake tensors that they stand for."""
    return torch.fx.node.map_arg(arguments, lambda node: node.meta.get("val"))


def _instruction(lowered: LoweredNode) -> str:
    """What Inductor made of a node, as `float32[4] Pointwise add(float32[4], 10)`."""
    node = lowered.node
    parts = parts_of_op(node.target)
    name = getattr(node.target, "__name__", str(node.target)) if parts is None else parts[1]
    called = f"{lowered.made} {lowered.extern or name}".strip()
    taken = ", ".join(
        _text(one) if isinstance(one, torch.fx.Node) else _plain(one)
        for one in (*node.args, *node.kwargs.values())
        if one is not None
    )
    return f"{_text(node)} {called}({taken})".strip()


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(one) if isinstance(one, torch.fx.Node) else _plain(one) for one in value)}]"
    return described_value(value, "")


def _text(node: torch.fx.Node) -> str:
    """What a node gives: its tensors by dtype and shape."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(tensor_text(one) for one in values if isinstance(one, torch.Tensor))
