"""`numdrift report`: the findings of an investigation as a page, as Markdown, or in the terminal."""

from __future__ import annotations

from pathlib import Path

import click

from ..records.codec import plain
from ..report.markdown import markdown_of
from ..report.report_page import NAME, page_of
from ..report.rows import report_of
from ..runs.recorded_run import find_investigation
from .command_options import force_option, json_option, out_option
from .investigate import frames_option, show, suspects_option
from .output import console, require_new, write_json, write_text

EXAMPLES = """\b
Examples:
  numdrift report                                   # the newest investigation
  numdrift report runs/train
  numdrift report runs/train --html train.html
  numdrift report runs/train --markdown > issue.md
  numdrift report runs/train --json -

\b
The page is report.html in the investigation's folder, unless --html names another file. It is a single file, and
opens without a network connection. The exit codes are those of `numdrift investigate`.
"""


@click.command(
    epilog=EXAMPLES, help="Show the findings of INVESTIGATION (default: the newest), and write them to a page."
)
@click.argument("investigation", required=False)
@click.option(
    "--html", metavar="FILE", help=f"The file to write the page to (default: {NAME} in the investigation's folder)."
)
@click.option("--markdown", is_flag=True, help="Print the report as Markdown for an issue tracker, and write no page.")
@suspects_option
@frames_option
@out_option
@force_option
@json_option
def command(
    investigation: str | None,
    html: str | None,
    markdown: bool,
    suspects: bool,
    frames: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    folder = find_investigation(out, investigation)
    report = report_of(folder)
    if markdown:
        click.echo(markdown_of(report), nl=False)
        return report.found.exit_code
    if json_path:
        answers = [plain(pair.answer) | {"a": pair.findings.a, "b": pair.findings.b} for pair in report.pairs]
        write_json(json_path, {"answers": answers, **report.found.to_json()}, force=force)
    require_new(html, force=force)
    path = folder / NAME if html is None else Path(html)
    write_text(path, page_of(report))
    if json_path != "-":
        show(console(), report.found, suspects=suspects, frames=frames)
        console().print(f"Wrote {path}", soft_wrap=True)
    return report.found.exit_code
