from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.torch_private.first_calls import FUNCTIONS, settle_first_calls


def test_what_is_called_first_is_unseen_by_modes() -> None:
    seen: list[str] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    # when
    settle_first_calls.cache_clear()
    with Seen():  # type: ignore[no-untyped-call]
        settle_first_calls()
    assert seen == []
    # then each is a function of torch, on one tensor
    one = torch.ones(1)
    with Seen():  # type: ignore[no-untyped-call]
        for name in FUNCTIONS:
            getattr(torch, name)(one)
    assert len(seen) == len(FUNCTIONS)
