"""`numdrift doctor`: reports which modes work on this machine."""

from __future__ import annotations

import platform
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from ..errors import UsageError, nearest
from ..launch.doctor import examine
from ..records.modes.mode_registry import registry
from ..runs.own_version import own_version
from .command_options import json_option
from .output import console, table, write_json
from .progress import reporter_for

EXAMPLES = """\b
Examples:
  numdrift doctor
  numdrift doctor --modes cpu,compile --json -
"""


@click.command(epilog=EXAMPLES, help="Train for two steps in every mode, and report what each mode lacks.")
@click.option("--modes", metavar="LIST", help="Try only these modes, as in cpu,compile.")
@json_option
def command(modes: str | None, json_path: str | None) -> int:
    bases = modes.split(",") if modes else list(registry.names())
    for base in bases:
        if base not in registry.names():
            raise UsageError(f"there is no mode {base!r}; {nearest(base, registry.names())}")
    with tempfile.TemporaryDirectory(prefix="numdrift-doctor-") as folder, reporter_for(bases) as reporter:
        examination = examine(Path(folder), bases, reporter)
    if json_path:
        write_json(json_path, {"schema": 1} | asdict(examination))
    if json_path != "-":
        out, environment = console(), examination.environment
        facts = table("", "")
        facts.show_header = False
        facts.add_row("numdrift", own_version())
        facts.add_row("python", platform.python_version())
        facts.add_row("torch", str(environment.get("torch", "not importable")))
        facts.add_row("cpu", f"{environment.get('cpu_capability', '-')}, {environment.get('threads', '-')} threads")
        facts.add_row("digests", str(environment.get("digest", "-")))
        compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
        facts.add_row("C++ compiler", compiler or "none: compile mode needs one (Debian: apt-get install g++)")
        out.print(facts)
        out.print()
        rows = table("mode", "works", "what it is", "what is missing", "remedy")
        for finding in examination.findings:
            rows.add_row(
                finding.mode, "yes" if finding.works else "no", finding.summary, finding.reason, finding.remedy
            )
        out.print(rows)
    return 0 if any(finding.works for finding in examination.findings) else 3  # 3: not even the CPU works
