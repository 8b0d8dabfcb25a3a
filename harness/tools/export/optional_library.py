"""Libraries that only exports or engines need, imported when one uses them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...errors import ExtraNotFound


def optional_library(module: str, extra: str) -> Any:
    """Import a module of a library that an extra installs. Raises ExtraNotFound if it cannot be imported."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraNotFound(module.partition(".")[0], extra, str(error)) from error


@contextmanager
def library_settings(prefix: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Replace all environment variables with this prefix by `settings` within the context.

    A user's settings for training runs, such as the run to continue, do not apply to an export.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith(prefix)}
    for name in before:
        del os.environ[name]
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(prefix)]:
            del os.environ[name]
        os.environ.update(before)
