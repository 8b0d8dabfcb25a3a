"""A tape of an accelerator moved to the CPU, for a process that does not have the accelerator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from .tape import Call, Tape, mapped

CPU = "cpu"


def on_cpu(tape: Tape) -> Tape:
    """Return the tape with every storage on the CPU.

    Its calls give other bits there than on their device. Random ones draw from the CPU's generator: what they drew is
    still on the tape, and the process that has the device draws it again.
    """
    slots = tuple(replace(slot, device=CPU) for slot in tape.slots)
    return replace(tape, slots=slots, calls=tuple(map(_moved, tape.calls)))


def _moved(call: Call) -> Call:
    def placed(value: Any) -> Any:
        return torch.device(CPU) if isinstance(value, torch.device) and value.type != "meta" else value

    arguments: tuple[Any, ...] = mapped(placed, call.arguments)
    keywords = {name: mapped(placed, value) for name, value in call.keywords.items()}
    draw = call.draw
    if draw is not None:
        draw = replace(draw, states=tuple(state for state in draw.states if state.device == CPU))
    return replace(call, arguments=arguments, keywords=keywords, draw=draw)
