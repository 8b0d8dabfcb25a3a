"""JSON as numdrift writes it for others: numbers that JSON lacks become text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(content: Any, indent: int = 2) -> str:
    """The content as JSON; NaN and infinities are written as `"nan"`, `"inf"` and `"-inf"`."""
    return json.dumps(plain(content), indent=indent, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The value with text for each number that is not finite, tuples as lists and keys as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
