"""The states of torch's default generators, by device."""

from __future__ import annotations

import torch


def generator_state(device: str) -> torch.Tensor:
    """The state of the default generator of a device."""
    if device == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_generator_state(device: str, state: torch.Tensor) -> None:
    if device == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)
