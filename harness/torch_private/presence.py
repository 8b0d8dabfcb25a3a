"""The guard of every hook: it checks that torch has a private name."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from ..errors import NotAvailable


def private(module: str, name: str) -> Any:
    try:
        return getattr(sys.modules.get(module) or importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NotAvailable(f"{module}.{name}", f"torch {torch.__version__} does not have it") from error


def require(holder: Any, name: str) -> None:
    if not hasattr(holder, name):
        raise NotAvailable(name, f"torch {torch.__version__} does not have it")


def versions_of(*packages: str) -> Mapping[str, str]:
    """Return the versions of those packages that are installed."""
    versions = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
