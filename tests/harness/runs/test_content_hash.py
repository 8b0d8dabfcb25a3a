"""The hash of an array's contents, against the digests of the recorder."""

from __future__ import annotations

import pytest
import torch

from numdrift.harness.observers.values.digest import Digester, hash_text
from numdrift.harness.runs.content_hash import content_hash

# bytes: none, a part of a stripe, a stripe, a block, a block and a stripe, many blocks
COUNTS = (0, 3, 16, 1024, 1040, 30_001)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_an_array_has_the_hash_of_its_digest(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for count in COUNTS:
        values = (100 * torch.randn(count, generator=generator)).to(dtype)
        assert content_hash(values.numpy()) == hash_text(Digester().digest([values])), count


def test_strides_do_not_matter_and_the_order_of_rows_does() -> None:
    values = torch.arange(12.0).reshape(3, 4)
    assert content_hash(values.t().numpy()) == content_hash(values.t().contiguous().numpy())
    assert content_hash(values.numpy()) != content_hash(values.flip(0).contiguous().numpy())
