"""The values of xla tensors, the kernels that compute them, and the graphs in which they are pending (torch_xla 2.9).

An op creates a new value. An in-place write replaces the tensor's value with a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ..device_kernels import OWN, DeviceKernel, dispatched_to, kernels_under
from ..presence import private
from .xla import CORE, read_xla, sync_xla, xla_generator_kept


def xla_value_id(tensor: torch.Tensor) -> int:
    """Return the number of an xla tensor's value.

    Each in-place write changes the number, and no number is used again. A tensor and its detached alias have the same
    number.
    """
    return int(private(CORE, "_xla_get_tensor_id")(tensor))


def is_pending(tensor: torch.Tensor) -> bool:
    """Return whether the value of an xla tensor is still to be computed, without executing anything."""
    return bool(private(CORE, "_check_tensor_need_materialization")([tensor])[0])


def xla_value_held(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that keeps the present value of an xla tensor, whatever is written to that tensor later."""
    if not torch._is_functional_tensor(tensor):
        return tensor.detach()
    private("torch", "_sync")(tensor)
    value: torch.Tensor = private("torch", "_from_functional_tensor")(tensor)
    return value


# Kernels, for the observers of the calls in a training run.


XLA_AUTOGRAD_KEY = "AutogradXLA"


def xla_composites() -> Iterator[DeviceKernel]:
    """Yield the aten ops that torch_xla decomposes above autograd.

    For each of them, torch itself has one kernel with one derivative, as for `native_layer_norm`.
    """
    for kernel in kernels_under(XLA_AUTOGRAD_KEY):
        kinds = (dispatched_to(kernel.name, XLA_AUTOGRAD_KEY), dispatched_to(kernel.name, "AutogradCPU"))
        if kinds == (OWN, "[autograd kernel]"):
            yield kernel


# Pending graphs: the values in them, the values that they start from, and the separate execution of their HLO.

SEED = "seed"
"""The name of the generator's state among the values that a graph starts from."""

_SEED_ID = -127389
"""The number of the generator's state in torch_xla (`seed_info_id` in torch_xla/csrc/xla_graph_executor.h, 2.9)."""


@dataclass(frozen=True, slots=True)
class XlaData:
    """A value that a pending graph starts from.

    `known_as` is the number of a tensor's value, SEED, or None for a value that is not a tensor of the script, such as
    a number in the script's code.
    """

    known_as: int | str | None
    tensor: torch.Tensor


def count_pending() -> int:
    """Return the number of tensors of the device whose values are still to be computed, whoever holds them."""
    device = private(CORE, "_xla_get_default_device")()
    return sum(private(CORE, "_check_device_tensor_need_materialization")(device))


def xla_hlo_proto(tensors: Sequence[torch.Tensor]) -> bytes:
    """Return the HLO of the graph that is pending for these tensors, as XLA's own HloModuleProto; nothing is executed.

    Raises RuntimeError if an op cannot be lowered.
    """
    return bytes(private(CORE, "_get_xla_tensors_hlo_proto")(list(tensors)))


def xla_data(tensors: Sequence[torch.Tensor]) -> list[XlaData]:
    """Return the values that the graph pending for these tensors starts from, in the order of its HLO's parameters.

    torch_xla collects the values and the parameters in the same walk through the graph.
    """
    numbers, values = private(CORE, "_get_tensors_xla_device_data_node")(list(tensors))
    named = {_SEED_ID: SEED, -1: None}
    return [XlaData(named.get(number, number), value) for number, value in zip(numbers, values, strict=True)]


def execute_hlo(proto: bytes, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Compile and execute an HLO module with XLA. `inputs` are the values of its parameters, in order.

    Returns the values of its root, on the CPU. Other pending work is executed as well. Raises RuntimeError.
    """
    module = private(CORE, "_xla_op_computation_from_module_proto")("numdrift", proto)
    with xla_generator_kept(), torch.no_grad():
        xla_inputs = [tensor.to("xla") for tensor in inputs]
        outputs = list(private(CORE, "_xla_user_computation")("xla::numdrift", xla_inputs, module))
        sync_xla(outputs)  # in one call: for a single output, XLA would leave out the work that only other outputs need
        return read_xla(outputs)
