"""A support analysis as one HTML page. It opens from disk, holds no script, and asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from .support_report import SupportReport

HERE = Path(__file__).parent


def write_page(report: SupportReport, mode: str, script: Mapping[str, Any], numdrift: str) -> str:
    """The whole page as text; what comes from the run is escaped. `script` is as in `report_json`."""
    style = (HERE / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html").render(
        report=report,
        record=report.record,
        mode=mode,
        script=script,
        numdrift=numdrift,
        style=Markup(style),
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )
    return page.encode("utf-8", "replace").decode("utf-8")
