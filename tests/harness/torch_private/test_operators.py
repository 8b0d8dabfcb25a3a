from __future__ import annotations

import torch

from numdrift.harness.torch_private.operators import decomposition_of, dispatched_names


def test_every_overload_of_aten_says_whether_torch_decomposes_it() -> None:
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    overloads = [
        getattr(packet, name) for packet in packets if hasattr(packet, "overloads") for name in packet.overloads()
    ]
    # TorchScript has overloads that the dispatcher lacks, such as index_put.hacked_twin
    alone = [overload for overload in overloads if overload.name() not in dispatched_names()]
    decompositions = {overload: decomposition_of(overload) for overload in overloads}
    assert alone and all(decompositions[overload] is None for overload in alone)
    assert decompositions[torch.ops.aten.tanh_backward.default] is not None
    assert decompositions[torch.ops.aten.mm.default] is None
