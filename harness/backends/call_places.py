"""The origin of a kernel call: phase, module, line of the script and autograd sequence number."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from numdrift.kernels.swaps.sites import MARK, ModulePaths

from ..records.tools.graph_record import Node
from ..script.script_lines import HARNESS
from ..tape.origin import script_line
from ..torch_private.dispatching import current_autograd_node, next_sequence_number, sequence_number
from ..torch_private.operators import op_parts

HIDDEN = (str(Path(torch.__file__).parent), HARNESS, "<frozen")
"""Path prefixes of the frames that a stack leaves out: torch's own files and the harness's."""


class CallPlaces:
    """The sites of the calls in a training run. The observer of the run's moments sets `phase`."""

    def __init__(self, script: str, modules: ModulePaths) -> None:
        self.phase = "forward"
        self._script = script
        self._modules = modules
        self._forward: dict[int, Node] = {}
        self._newest = next_sequence_number() - 1
        self._is_taken = True
        self._lines: dict[tuple[CodeType, int], str] = {}

    def here(self, operation: Any, attributes: dict[str, Any]) -> Node:
        """Return a node for the op that is about to be called, without name, inputs or outputs."""
        running = current_autograd_node()
        grad = torch.is_grad_enabled()
        if self.phase == "optimizer" and running is None and grad:
            self.phase = "forward"
        op, domain, overload = op_parts(operation)
        number: int | None = None
        source = script_line(self._script) or ""
        if running is None:
            # `number` is the sequence number of the autograd node made for this op, None if no node was made. Before
            # the op, torch's core may update views by `_copy` ops. These belong to the op too, so they do not use up
            # the number.
            module, newest = self._modules.current, next_sequence_number() - 1
            if newest != self._newest:
                self._newest, self._is_taken = newest, False
            if grad and not self._is_taken:
                number, self._is_taken = newest, not op.endswith("_copy")
        else:
            module, number = running.metadata.get(MARK), sequence_number(running)
            if number is not None and number in self._forward:
                before = self._forward[number]
                module, source = before.module if module is None else module, before.source
        # The user's frames, outermost first
        lines: list[str] = []
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(HIDDEN):
                key = (code, frame.f_lineno)
                if key not in self._lines:
                    self._lines[key] = f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'
                lines.append(self._lines[key])
            frame = frame.f_back
        node = Node(
            name="",
            op=op,
            domain=domain,
            overload=overload,
            phase=self.phase if running is None else "backward",
            module=module,
            source=source,
            stack="\n".join(reversed(lines)),
            sequence=number,
            attributes=attributes,
        )
        if running is None and number is not None:
            self._forward[number] = node
        return node
