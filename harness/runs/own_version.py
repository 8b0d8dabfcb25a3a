"""The version of numdrift that is running."""

from __future__ import annotations

import importlib.metadata

FROM_SOURCE = "(source folder)"


def own_version() -> str:
    """Return numdrift's version; `FROM_SOURCE` if it is not installed but runs from a source folder."""
    try:
        return importlib.metadata.version("numdrift")
    except importlib.metadata.PackageNotFoundError:
        return FROM_SOURCE
