"""The environment of processes that run side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

POLICY = "OMP_WAIT_POLICY"


@contextmanager
def passive_threads() -> Iterator[None]:
    """Have OpenMP threads of processes that are started within sleep while they wait; it changes no result."""
    given = POLICY in os.environ
    os.environ.setdefault(POLICY, "passive")
    try:
        yield
    finally:
        if not given:
            os.environ.pop(POLICY, None)
