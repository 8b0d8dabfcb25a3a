"""The keys of a mode that execute the script's training in another way, which is meant to compute the same thing."""

from __future__ import annotations

from collections.abc import Mapping

OPTIMIZER = "optimizer"
CLIPPING = "clipping"
ZERO_GRAD = "zero_grad"
CHECKPOINTING = "checkpointing"
MEMORY_FORMAT = "memory_format"
WORKERS = "workers"

NO_EFFECT = "changes nothing: "
"""The beginning of the reason in the doubt about a key that has changed nothing in the first step."""

LOOP, FOREACH, FUSED = "loop", "foreach", "fused"
"""Implementations of torch's optimizers: tensor by tensor, on lists of tensors, or in one kernel."""

EXECUTION_KEYS: Mapping[str, tuple[str, ...]] = {
    OPTIMIZER: (LOOP, FOREACH, FUSED),
    # torch.nn.utils.clip_grad_norm_ and clip_grad_value_
    CLIPPING: (LOOP, FOREACH),
    # what zero_grad() leaves in place of a gradient
    ZERO_GRAD: ("none", "zeros"),
    # activation checkpointing: the blocks of a model are computed again in the backward
    CHECKPOINTING: ("on",),
    # the layout of the parameters of a model with convolutions
    MEMORY_FORMAT: ("channels_last",),
}
"""The values of these keys. `workers`, the number of processes of a data loader, is one of these keys as well."""
