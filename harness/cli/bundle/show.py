"""`numdrift bundle show`: lists the content of a bundle without unpacking it."""

from __future__ import annotations

from dataclasses import asdict

import click

from ...api.bundling import local_copy
from ...tools.bundle.opening import describe
from ..command_options import json_option
from ..output import console, table, write_json
from .make import contents_table, mebibytes

EXAMPLES = """\b
Examples:
  numdrift bundle show train.numdrift.zip
  numdrift bundle show train.numdrift.zip --files
  numdrift bundle show s3://bucket/train.zip --json -
"""


@click.command(epilog=EXAMPLES, help="List the contents of BUNDLE, a path or URL, without unpacking or checking it.")
@click.argument("bundle")
@click.option("--files", is_flag=True, help="List every file.")
@json_option
def command(bundle: str, files: bool, json_path: str | None) -> int:
    with local_copy(bundle) as archive:
        described = describe(archive)
    if json_path:
        write_json(json_path, asdict(described))
    if json_path == "-":
        return 0
    out = console()
    redacted = ", redacted" if described.redacted else ""
    out.print(
        f"{described.investigation}, packed {described.made} by numdrift {described.numdrift}{redacted}", soft_wrap=True
    )
    environment = described.environment
    if environment:
        out.print(
            f"recorded with torch {environment.get('torch')}, Python {environment.get('python')}, "
            f"{environment.get('platform')}, {environment.get('cpu_capability')}",
            soft_wrap=True,
        )
    out.print(contents_table(described))
    if files:
        rows = table("file", "kind", ">size", "SHA-256")
        for file in described.files:
            rows.add_row(file.path, file.kind, mebibytes(file.bytes), file.sha256[:16])
        out.print(rows)
    return 0
