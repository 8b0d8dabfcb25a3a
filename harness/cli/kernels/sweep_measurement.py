"""What `numdrift kernels sweep` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from numdrift.kernels.lab import sweep_state
from numdrift.kernels.lab.captured import stdout_to_stderr
from numdrift.kernels.lab.reference import describe
from numdrift.kernels.lab.sweep import Sweep
from numdrift.kernels.lab.sweep_candidates import Candidate, candidates
from numdrift.kernels.lab.sweep_domain import ENCODINGS, Domain
from numdrift.kernels.lab.sweep_native import fastest_reduction
from numdrift.kernels.lab.sweep_result import BinErrors, KernelErrors, as_json
from numdrift.kernels.lab.sweep_state import SweepProgress
from numdrift.kernels.lab.sweep_subject import Subject, roundings, subject_of
from numdrift.kernels.lab.sweep_zoom import Zoom, zoom_on_worst
from numdrift.kernels.registry import built_in
from numdrift.plots.appearance import save
from numdrift.plots.ulp_error import UlpEnvelope, UlpZoom, ulp_error

from ...errors import CollisionError, UsageError
from ..output import console, number, table, write_json
from .measuring_bars import shown

TIMED_INPUTS = 1 << 24
"""Below this many inputs, how long a sweep took says nothing about its speed, and is not printed."""


def measure(op: str, dtype: str, options: dict[str, Any]) -> int:
    """Measure, print and write what the command's options ask for; the exit code."""
    errors = console(stderr=True)
    _check_outputs(options["json_path"], options["plot"], force=options["force"])
    encoding = ENCODINGS[dtype]
    domain = Domain.parse(encoding, options["bounds"])
    subject = subject_of(op, encoding, options["vary"], options["hold"])
    with stdout_to_stderr():
        found = _found(subject, domain, options, errors)
        zoom = zoom_on_worst(found)
    reference = describe(replace(built_in().operation(op), exact=""), encoding.torch_dtype)
    if options["json_path"] != "-":
        _show(subject, domain, found, reference, console())
    if options["plot"]:
        _draw(subject, domain, found, zoom, options["plot"])
        (console() if options["json_path"] != "-" else errors).print(f"Wrote {options['plot']}", soft_wrap=True)
    if options["json_path"]:
        content = _json(subject, domain, found, zoom) | {"reference": reference}
        write_json(options["json_path"], content, force=options["force"])
    return 0


def _found(subject: Subject, domain: Domain, options: dict[str, Any], errors: Console) -> list[KernelErrors]:
    """Sweep the kernels that are asked for, and say what there is to know beforehand."""
    large = subject.encoding.width > 16 and domain.is_whole
    chosen, notes = candidates(built_in(), subject, options["kernels"], every=not large, seconds=options["timeout"])
    notes += roundings(subject, options["hold"])
    if large and not options["kernels"]:
        notes.append("only aten is swept over all of float32; --kernel names others, --range asks for less")
    for note in notes:
        errors.print(f"numdrift: {note}", soft_wrap=True)
    return [_measured(candidate, domain, options, errors) for candidate in chosen]


def _check_outputs(json_path: str | None, plot: Path | None, *, force: bool) -> None:
    if plot is not None and plot.suffix != ".png":
        raise UsageError(f"--plot {plot} is no .png file")
    for path in (Path(json_path) if json_path and json_path != "-" else None, plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")
        if path is not None and path.exists() and not force:
            raise CollisionError(path, "choose another file, or replace it with --force")


def _measured(candidate: Candidate, domain: Domain, options: dict[str, Any], errors: Console) -> KernelErrors:
    """Sweep one kernel, or take what is kept of it."""
    reduction, slower = fastest_reduction(domain.encoding)
    sweep = Sweep(candidate, domain, reduction, jobs=options["jobs"] or _cores())
    identity = sweep.identity()
    usual = domain.is_whole and not options["vary"] and not options["hold"]
    folder = identity.folder(options["out"], plain=usual)
    kept, why = (None, "") if options["fresh"] else sweep_state.load(folder, identity, domain)
    progress = kept or SweepProgress.none(domain)

    def say(text: str) -> None:
        errors.print(f"numdrift: {candidate.label}: {text}", soft_wrap=True)

    if why:
        say(f"what {folder} keeps {why}: starting afresh")
    if progress.finished(domain):
        say(f"taken from {folder} (--fresh measures again)")
        return KernelErrors(candidate, domain, progress)
    if slower:
        say(slower)
    if progress.inputs():
        say(f"going on after {progress.inputs():,} of {domain.count:,} inputs kept in {folder}")
    try:
        with shown(candidate.label, domain.count, progress.inputs()) as told:
            sweep.run(progress, folder, told)
    except KeyboardInterrupt:
        say(f"{progress.inputs():,} of {domain.count:,} inputs are kept in {folder}; the same command goes on")
        raise
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; --out names another folder") from None
    return KernelErrors(candidate, domain, progress)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _show(subject: Subject, domain: Domain, found: Sequence[KernelErrors], reference: str, out: Console) -> None:
    rows = table(
        "kernel", ">inputs", ">max ULP", "at", ">mean ULP", ">bias ULP",
        ">not correctly rounded", ">above 1 ULP", ">non-finite disagreements",
    )  # fmt: skip
    for one in found:
        rows.add_row(
            one.kernel,
            f"{one.total('count'):,}",
            _ulp(one.max_ulp),
            _place(one, one.max_at),
            _ulp(one.mean_ulp),
            number(one.bias_ulp),
            _share(one, "not_correct"),
            _share(one, "above_one"),
            _disagreements(one),
        )
    out.print(f"{_title(subject, domain)} · reference {reference}", soft_wrap=True)
    out.print(rows)
    for one in found:
        if one.total("count") >= TIMED_INPUTS:
            out.print(_time(one), soft_wrap=True)


def _title(subject: Subject, domain: Domain) -> str:
    inputs = "all inputs" if domain.is_whole else f"inputs {domain.low:g} to {domain.high:g}"
    varied = f"{inputs} as {subject.described()}"
    return f"{subject.op} · {subject.encoding.name} · {varied} · torch {torch.__version__}"


def _ulp(error: float) -> str:
    return f"{error:.4f}" if error < 100 else f"{error:.4g}"


def _place(errors: KernelErrors, pattern: int | None) -> str:
    if pattern is None:
        return "-"
    value = errors.encoding.value(pattern)
    return f"{value:.9g} ({errors.encoding.hexadecimal(pattern)})"


def _share(errors: KernelErrors, count: str) -> str:
    share = 100 * errors.share(count)
    return "0" if share == 0 else f"{share:.3g} %"


def _disagreements(errors: KernelErrors) -> str:
    count = errors.total("disagree")
    return f"{count:,}, first {_place(errors, errors.disagree_at)}" if count else "0"


def _time(errors: KernelErrors) -> str:
    count = errors.total("count")
    inputs = "2^32" if count == 1 << 32 else f"{count:,}"
    took = f"{errors.candidate.label}: {inputs} inputs in {errors.progress.wall:.3g} s"
    if errors.slowdown is None:
        return took
    return f"{took}, {errors.slowdown:.1f} times what aten.{errors.candidate.subject.op} alone takes"


def _json(subject: Subject, domain: Domain, found: Sequence[KernelErrors], zoom: Zoom | None) -> dict[str, Any]:
    return {
        "schema": 1,
        "op": subject.op,
        "dtype": subject.encoding.name,
        "varied": subject.varied,
        "held": {name: value if isinstance(value, (int, float, str)) else str(value)
                 for name, value in subject.held},
        "range": None if domain.is_whole else domain.described(),
        "torch": torch.__version__,
        "kernels": [as_json(one) for one in found],
        "zoom": zoom.as_json() if zoom else None,
    }  # fmt: skip


def _draw(subject: Subject, domain: Domain, found: Sequence[KernelErrors], zoom: Zoom | None, path: Path) -> None:
    drawn = None
    if zoom is not None:
        value = zoom.encoding.value(zoom.center)
        center = f"the worst of {zoom.kernel}, {value:.9g} ({zoom.encoding.hexadecimal(zoom.center)})"
        drawn = UlpZoom(center, zoom.offsets, zoom.inputs, zoom.errors)
    figure = ulp_error([_envelope(one) for one in found], title=_title(subject, domain), zoom=drawn)
    try:
        save(figure, path.with_suffix(""), ("png",))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _envelope(errors: KernelErrors) -> UlpEnvelope:
    bins = BinErrors.of(errors)
    centers = bins.centers(errors.encoding)
    drawn = (bins.records["measured"] > 0) & (centers != 0) & np.isfinite(centers)
    return UlpEnvelope(errors.kernel, centers[drawn], bins.records["max_ulp"][drawn], bins.mean[drawn])
