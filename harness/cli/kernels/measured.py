"""What `numdrift kernels check` and `numdrift kernels sweep` print, draw and write of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from rich.text import Text

from numdrift.kernels.lab.check import ABSENT, FAILED, SCHEMA, CheckRow, as_data, by_kernel, summary
from numdrift.kernels.lab.measures import BIASED
from numdrift.kernels.lab.sweep_result import BinErrors, KernelErrors, as_json
from numdrift.plots.appearance import save
from numdrift.plots.kernel_errors import ErrorsOfKernel, kernel_errors
from numdrift.plots.ulp_error import UlpEnvelope, UlpZoom, ulp_error

from ...api.kernel_measuring import SweptKernels, checked, refuse_outputs, swept
from ...errors import UsageError
from ..output import console, number, table, write_json
from .measuring_bars import LateBar, sweep_bar

FAULT = 16.0
"""The rho from which on an error is no rounding any more, as the help of `kernels check` says."""

PLOT_FORMATS = ("png", "svg", "pdf")

TIMED_INPUTS = 1 << 24
"""Below this many inputs, how long a sweep took says nothing about its speed, and is not printed."""


def check(op: str, *, verbose: bool, plot: Path | None, force: bool, json_path: str | None, **asked: Any) -> int:
    """Measure, print and write what the options of `kernels check` ask for; the exit code."""
    if plot and plot.suffix.removeprefix(".") not in PLOT_FORMATS:
        raise UsageError(f"--plot {plot} must end in .png, .svg or .pdf")
    refuse_outputs(plot, json_path, force=force)
    with LateBar() as bar:
        rows, reference = checked(op, progress=bar.update, **asked)
    about = f"{asked['dtype']} on {asked['device']}, {asked['samples']:,} samples, seed {asked['seed']}"
    if json_path != "-":
        out = console()
        out.print(f"{op}: reference {reference}; {about}\n", soft_wrap=True)
        out.print(_table(rows, verbose=verbose))
    if json_path:
        settings = {"op": op} | {name: asked[name] for name in ("dtype", "device", "samples", "seed")}
        content = {"schema": SCHEMA, **settings, "reference": reference, "rows": [as_data(row) for row in rows]}
        write_json(json_path, content, force=force)
    if plot:  # after the JSON: what was measured is kept, also where there is nothing to draw
        errors = [
            ErrorsOfKernel(row.kernel, row.label, row.worst.errors if row.measures else ())
            for row in rows
            if row.status != ABSENT
        ]
        if not any(one.errors for one in errors):
            raise UsageError("no kernel was measured: there is nothing to draw")
        try:
            figure = kernel_errors(errors, title=f"Error of {op} kernels · {about}")
            written = save(figure, plot.with_suffix(""), [plot.suffix[1:]])[0]
        except OSError as error:
            raise UsageError(f"{plot} cannot be written: {error.strerror}") from None
        console(stderr=json_path == "-").print(f"Wrote {written}", soft_wrap=True)
    return 3 if any(row.status == FAILED for row in rows) else 0


def _table(rows: Sequence[CheckRow], *, verbose: bool) -> Table:
    """A row a kernel, the worst of all its cases; with `verbose` a row a case."""
    made = table(
        "kernel", "inputs" if verbose else "worst on",
        ">max ULP", ">p99", ">median", ">rho", ">bias", ">z", ">differs", "non-finite, remarks",
    )  # fmt: skip
    shown = [(summary([row]), row.label) for row in rows] if verbose else [(one, "") for one in by_kernel(rows)]
    for one, label in shown:
        bias = one.bias if one.max_ulp is not None else None
        towards = f" {bias.towards}" if bias is not None and abs(bias.z) > BIASED else ""
        made.add_row(
            one.kernel,
            one.where or label,  # a case that was not measured has no worst place
            *(_digits(value) for value in (one.max_ulp, one.p99_ulp, one.median_ulp)),
            Text(_digits(one.rho), style="bold red" if one.rho is not None and one.rho > FAULT else ""),
            "-" if bias is None else _digits(bias.ulp),
            "-" if bias is None else f"{bias.z:.1f}{towards}",
            "-" if one.differs is None else f"{100 * one.differs:.3g} %",
            Text(one.remarks, style="bold red" if one.status == FAILED else ""),
        )
    return made


def _digits(value: float | None) -> str:
    """Three digits, thousands in full."""
    if value is None:
        return "-"
    if value == 0 or abs(value) < 1e-3 or abs(value) >= 1e7:
        return "0" if value == 0 else f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def sweep(op: str, dtype: str, *, plot: Path | None, force: bool, json_path: str | None, **asked: Any) -> int:
    """Measure, print and write what the options of `kernels sweep` ask for; the exit code."""
    errors = console(stderr=True)
    if plot is not None and plot.suffix != ".png":
        raise UsageError(f"--plot {plot} is no .png file")
    refuse_outputs(plot, json_path, force=force)

    def say(text: str) -> None:
        errors.print(f"numdrift: {text}", soft_wrap=True)

    made = swept(op, dtype, say=say, shown=sweep_bar, **asked)
    if json_path != "-":
        console().print(f"{_title(made)} · reference {made.reference}", soft_wrap=True)
        _show_swept(made)
    if plot:
        _draw(made, plot)
        (console() if json_path != "-" else errors).print(f"Wrote {plot}", soft_wrap=True)
    if json_path:
        content = {
            "schema": 1,
            "op": made.subject.op,
            "dtype": made.subject.encoding.name,
            "varied": made.subject.varied,
            "held": {
                name: value if isinstance(value, (int, float, str)) else str(value) for name, value in made.subject.held
            },
            "range": None if made.domain.is_whole else made.domain.described(),
            "torch": torch.__version__,
            "kernels": [as_json(one) for one in made.found],
            "zoom": made.zoom.as_json() if made.zoom else None,
            "reference": made.reference,
        }
        write_json(json_path, content, force=force)
    return 0


def _title(made: SweptKernels) -> str:
    subject, domain = made.subject, made.domain
    inputs = "all inputs" if domain.is_whole else f"inputs {domain.low:g} to {domain.high:g}"
    return f"{subject.op} · {subject.encoding.name} · {inputs} as {subject.described()} · torch {torch.__version__}"


def _show_swept(made: SweptKernels) -> None:
    """A row a kernel, and what each one that is large enough took."""
    rows = table(
        "kernel", ">inputs", ">max ULP", "at", ">mean ULP", ">bias ULP",
        ">not correctly rounded", ">above 1 ULP", ">non-finite disagreements",
    )  # fmt: skip
    for one in made.found:
        shares = [100 * one.share(count) for count in ("not_correct", "above_one")]
        disagreeing = one.total("disagree")
        rows.add_row(
            one.kernel,
            f"{one.total('count'):,}",
            _ulp(one.max_ulp),
            _place(one, one.max_at),
            _ulp(one.mean_ulp),
            number(one.bias_ulp),
            *("0" if share == 0 else f"{share:.3g} %" for share in shares),
            f"{disagreeing:,}, first {_place(one, one.disagree_at)}" if disagreeing else "0",
        )
    console().print(rows)
    for one in made.found:
        count = one.total("count")
        if count >= TIMED_INPUTS:
            inputs = "2^32" if count == 1 << 32 else f"{count:,}"
            took = f"{one.candidate.label}: {inputs} inputs in {one.progress.wall:.3g} s"
            if one.slowdown is not None:
                took += f", {one.slowdown:.1f} times what aten.{one.candidate.subject.op} alone takes"
            console().print(took, soft_wrap=True)


def _ulp(error: float) -> str:
    return f"{error:.4f}" if error < 100 else f"{error:.4g}"


def _place(errors: KernelErrors, pattern: int | None) -> str:
    if pattern is None:
        return "-"
    return f"{errors.encoding.value(pattern):.9g} ({errors.encoding.hexadecimal(pattern)})"


def _draw(made: SweptKernels, path: Path) -> None:
    """The largest error of each bin of inputs, kernel by kernel, and every input around the worst of all."""
    envelopes = []
    for one in made.found:
        bins = BinErrors.of(one)
        centers = bins.centers(one.encoding)
        # the axis is logarithmic on both sides of 0, which has no place on it itself
        drawn = (bins.records["measured"] > 0) & (centers != 0) & np.isfinite(centers)
        envelopes.append(UlpEnvelope(one.kernel, centers[drawn], bins.records["max_ulp"][drawn], bins.mean[drawn]))
    zoom, closer = made.zoom, None
    if zoom is not None:
        value = zoom.encoding.value(zoom.center)
        center = f"the worst of {zoom.kernel}, {value:.9g} ({zoom.encoding.hexadecimal(zoom.center)})"
        closer = UlpZoom(center, zoom.offsets, zoom.inputs, zoom.errors)
    figure = ulp_error(envelopes, title=_title(made), zoom=closer)
    try:
        save(figure, path.with_suffix(""), ("png",))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
