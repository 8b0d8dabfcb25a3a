"""The reader of the TOML files that users write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib

from ..errors import UsageError


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises UsageError for a file that cannot be read, or that is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
