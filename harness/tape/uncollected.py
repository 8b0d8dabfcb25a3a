"""A context in which Python does not look for garbage.

The calls of a tape are a million objects that last. The collector would go through all of them again and again while
they are made, which takes as long as making them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Make no cyclic garbage collection within the context, or within a function that it decorates."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
