"""The files that a reference for other machines consists of."""

from __future__ import annotations

import pytest

from numdrift.harness.investigate.portable_reference import is_packed

AGAIN = "evidence/cpu-again"


@pytest.mark.parametrize(
    ("name", "with_ops", "without"),
    [
        ("cpu/run.json", True, True),
        ("verify_cpu.pkl", False, False),
        (f"{AGAIN}/outcomes/outcome-000000.safetensors", True, True),
        (f"{AGAIN}/outcomes/earlier-17.safetensors", True, True),
        (f"{AGAIN}/tapes/noise-000000.json", True, True),
        (f"{AGAIN}/tapes/tape-000000.safetensors", True, False),
        (f"{AGAIN}/tapes/earlier-17.safetensors", True, False),
    ],
)
def test_tapes_and_what_they_refer_to_are_packed_with_ops_alone(name: str, with_ops: bool, without: bool) -> None:
    assert is_packed(name, ops=True) == with_ops
    assert is_packed(name) == without
