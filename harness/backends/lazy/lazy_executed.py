"""The executed graphs of the lazy core, written into the run's folder: each kind once, each execution."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

from ... import torch_private
from ...records.graph_folder import GraphFolder
from ...records.graph_record import Cut
from . import torchscript
from .lazy_dump import DumpedGraph
from .lazy_known import KnownValues
from .lazy_post import Alignment, align, parameters_in_order, post_graph
from .lazy_pre import PreGraph, is_foreign
from .torchscript import ScriptGraph

NO_POST = "its optimised graph is not known: another graph was executed before this one could be asked for"


class ExecutedGraphs:
    """Writes the graphs that hold ops of the steps in `steps`, under the step of their latest op."""

    def __init__(self, folder: GraphFolder, known: KnownValues, steps: Container[int]) -> None:
        self._folder = folder
        self._known = known
        self._steps = steps
        self._names: dict[str, str] = {}
        self._with_post: set[str] = set()

    @property
    def has_any(self) -> bool:
        return bool(self._names)

    def take(self, dump: DumpedGraph, cut: Cut, step: int, *, is_last: bool, is_awaited: bool) -> int | None:
        """Take one execution, the last one so far if `is_last`; `step` is the one to file it under if it has no op.

        One that goes on into steps that are not wanted is taken if `is_awaited`, and filed under the last that is.
        Gives the step of its latest op, None for one whose ops are none of those followed.
        """
        if is_foreign(dump, self._known):
            return None
        script = _script_graph(dump) if is_last else None
        alignment = align(script, dump)
        built = PreGraph(dump, self._known, alignment.outputs)
        met = {call.step for call in built.calls} or {step}
        wanted = [one for one in met if one in self._steps]
        if wanted and (is_awaited or max(met) in self._steps):
            self._in_step(max(wanted), lambda: self._write(dump, cut, built, alignment, script))
        return max(met)

    def _write(
        self,
        dump: DumpedGraph,
        cut: Cut,
        built: PreGraph,
        alignment: Alignment,
        script: ScriptGraph | None,
    ) -> None:
        base = self._names.get(dump.digest)
        if base is None or (script is not None and base not in self._with_post):
            pre = replace(built.graph(self._folder.step), hash=dump.digest, cut=cut)
            if base is None:
                base = self._names[dump.digest] = self._folder.reserve(pre.phase)
                notes = pre.notes if script is not None else (*pre.notes, NO_POST)
                self._folder.write(replace(pre, name=f"{base}-pre", notes=notes))
            if script is not None:
                self._with_post.add(base)
                post = post_graph(script, pre, built, alignment)
                notes = (*post.notes, *_order_notes(alignment, script, dump))
                self._folder.write(replace(post, name=f"{base}-post", pre=f"{base}-pre", notes=notes))
        self._folder.executed(base, dump.digest, cut)

    def _in_step(self, step: int, write: Callable[[], None]) -> None:
        self._folder.step, before = step, self._folder.step
        try:
            write()
        finally:
            self._folder.step = before


def _script_graph(dump: DumpedGraph) -> ScriptGraph | None:
    """TorchScript's last graph, None where it cannot be the one of this execution."""
    try:
        script = torchscript.read(torch_private.last_torchscript_graph())
    except RuntimeError:
        return None
    return script if len(script.outputs) == len(dump.hashes) else None


def _order_notes(alignment: Alignment, script: ScriptGraph, dump: DumpedGraph) -> list[str]:
    """A doubt about which parameter is which: TorchScript numbers them as the IR first needs them."""
    order = list(dict.fromkeys(parameters_in_order(alignment, script, dump.nodes)))
    expected = [name for name in script.inputs if name in order]
    return [] if order == expected else ["the inputs are not in the order of the graph before"]
