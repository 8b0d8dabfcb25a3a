"""What every page that opens from disk is made with: templates that escape, data that end no element, and the hashes by
which a page's policy names what may run."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2


def templates(folder: Path) -> jinja2.Environment:
    """The templates of a folder: what goes into them is escaped, and what they lack is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def json_in_page(data: Any) -> str:
    """ASCII, and without a `<` that could end the element that the data stand in. Raises ValueError for NaN."""
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hash_of(text: str) -> str:
    """A script or style as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
