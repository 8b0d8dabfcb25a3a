"""The parts of every page that opens from disk: escaping templates, JSON that cannot close the element around it, and
the hashes that allow scripts and styles in the page's content security policy."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2


def templates(folder: Path) -> jinja2.Environment:
    """Return the templates of a folder: inserted values are escaped, and missing values are errors."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def json_in_page(data: Any) -> str:
    """Return JSON in ASCII, without a `<` that could close the surrounding element. Raises ValueError for NaN."""
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hash_of(text: str) -> str:
    """Return the hash of a script or style, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
