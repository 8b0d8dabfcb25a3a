"""`numdrift bundle INVESTIGATION`: pack it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ...errors import CollisionError
from ...records.mode_spec import parse_mode
from ...runs.recorded_run import find_investigation, runs_in
from ...tools.bundle.archive import Bundle, Packed, is_url, upload, write_bundle
from ...tools.bundle.bundle_contents import KINDS, SENSITIVE, Kind, chosen_kinds
from ..command_options import force_option, json_option, out_option
from ..output import console, write_json
from .shown import bytes_bar, contents_table, mebibytes

EXAMPLES = f"""\b
Examples:
  numdrift bundle runs/train
  numdrift bundle runs/train --redact --leave-out source
  numdrift bundle runs/train --values --to train.zip
  numdrift bundle runs/train --to s3://bucket/train.zip

\b
Kinds of files: {", ".join(KINDS)}.
`values` go in with --values only. A redacted bundle has digests (hash, min, max, mean, L2) in place of tensors and
nothing of what the script printed.
"""


@click.command(epilog=EXAMPLES, help="Pack INVESTIGATION (default: the newest) into one archive.")
@click.argument("investigation", required=False)
@click.option("--to", metavar="PATH|URL", help="Where to (default: NAME.numdrift.zip); any URL that fsspec knows.")
@click.option("--redact", is_flag=True, help="Leave out parameters and data, and keep their digests.")
@click.option("--values", is_flag=True, help="Pack parameters, gradients and step tapes, too.")
@click.option(
    "--leave-out",
    "left_out",
    multiple=True,
    metavar="KIND",
    help="Leave files of a kind out; may be repeated.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but what is sensitive.")
@out_option
@force_option
@json_option
def command(
    investigation: str | None,
    to: str | None,
    redact: bool,
    values: bool,
    left_out: Sequence[str],
    quiet: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    kinds = chosen_kinds(left_out, values=values)
    folder = find_investigation(out, investigation)
    to = to or f"{folder.resolve().name}.numdrift.zip"
    if is_url(to):
        with tempfile.TemporaryDirectory() as temporary:
            local = Path(temporary) / "bundle.zip"
            bundle = _written(folder, local, kinds, redact, quiet)
            size = local.stat().st_size
            upload(local, to, force=force)
    else:
        if Path(to).exists() and not force:
            raise CollisionError(Path(to), "choose another place with --to, or replace it with --force")
        bundle = _written(folder, Path(to), kinds, redact, quiet)
        size = Path(to).stat().st_size
    if json_path:
        write_json(json_path, {"to": to, "size": size, **asdict(bundle)})
    if json_path != "-" and not quiet:
        console().print(contents_table(bundle))
        console().print(f"Wrote {to} ({mebibytes(size)})", soft_wrap=True)
    _point_out(bundle, folder)
    return 0


def _written(folder: Path, target: Path, kinds: frozenset[Kind], redact: bool, quiet: bool) -> Bundle:
    with bytes_bar("packing", quiet=quiet) as packed:
        return write_bundle(folder, target, kinds, redact=redact, packed=packed)


def _point_out(bundle: Bundle, folder: Path) -> None:
    """Say what a stranger could learn from the bundle."""
    errors = console(stderr=True)
    for kind, what in SENSITIVE.items():
        files = [one for one in bundle.of_kind(kind) if _tells(one, redacted=bundle.redacted)]
        if files:
            remedy = f"--leave-out {kind}" if kind == "source" else f"--redact or --leave-out {kind}"
            count = f"{len(files)} file{'s' if len(files) > 1 else ''}"
            errors.print(f"numdrift: sensitive: {kind} ({count}): {what}; {remedy} leaves it out", soft_wrap=True)
    variables = sorted({name for run in runs_in(folder) for name in parse_mode(run.manifest.spec).env})
    if variables:
        errors.print(
            f"numdrift: sensitive: the modes state environment variables with their values: {', '.join(variables)}",
            soft_wrap=True,
        )


def _tells(file: Packed, *, redacted: bool) -> bool:
    """Whether a file has data or text of the user's; digests and the scripts around them have none."""
    return not redacted or file.kind == "source"
