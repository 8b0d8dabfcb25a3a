"""Tapes that are moved to a device other than that of their recording."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch

from .tape import Call, Tape, mapped

META = "meta"


def placed(tape: Tape, device: str) -> Tape:
    """Return the tape with every storage on `device`, which also replaces the devices that the calls name.

    The calls may compute different bits on `device` than on the recorded device. The states of the generators of all
    other devices are dropped, but the recorded draws stay on the tape.
    """

    def argument(value: Any) -> Any:
        return torch.device(device) if isinstance(value, torch.device) and value.type != META else value

    def moved(call: Call) -> Call:
        arguments: tuple[Any, ...] = mapped(argument, call.arguments)
        keywords = {name: mapped(argument, value) for name, value in call.keywords.items()}
        draw = call.draw
        if draw is not None:
            draw = replace(draw, states=tuple(state for state in draw.states if state.device == device))
        return replace(call, arguments=arguments, keywords=keywords, draw=draw)

    slots = tuple(replace(slot, device=device) for slot in tape.slots)
    return replace(tape, slots=slots, calls=tuple(map(moved, tape.calls)))


def is_known(devices: Collection[str]) -> bool:
    """Return whether torch, in this process, knows the names of these devices. The devices need not exist."""
    try:
        return all(torch.device(device) is not None for device in devices)
    except RuntimeError:
        return False
