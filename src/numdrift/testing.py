"""Assertions for test suites.

from numdrift.testing import assert_equivalent

def test_scaled() -> None:
    assert_equivalent(scaled, "randn(4, 8)", modes="cpu,compile")
"""

from .harness.api.checking import assert_equivalent

__all__ = ["assert_equivalent"]
