"""Print, draw and write the measurements of `numdrift kernels check` and `numdrift kernels sweep`."""

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
"""The rho above which an error is a fault rather than rounding, as the help of `kernels check` says."""

PLOT_FORMATS = ("png", "svg", "pdf")

TIMED_INPUTS = 1 << 24
"""The smallest number of inputs for which the time of a sweep is printed. A shorter sweep does not show the speed."""


def check(op: str, *, verbose: bool, plot: Path | None, force: bool, json_path: str | None, **request: Any) -> int:
    """Measure, print and write what the options of `kernels check` request; return the exit code."""
    if plot and plot.suffix.removeprefix(".") not in PLOT_FORMATS:
        raise UsageError(f"--plot {plot} must end in .png, .svg or .pdf")
    refuse_outputs(plot, json_path, force=force)
    with LateBar() as bar:
        rows, reference = checked(op, progress=bar.update, **request)
    about = f"{request['dtype']} on {request['device']}, {request['samples']:,} samples, seed {request['seed']}"
    if json_path != "-":
        out = console()
        out.print(f"{op}: reference {reference}; {about}\n", soft_wrap=True)
        out.print(_table(rows, verbose=verbose))
    if json_path:
        settings = {"op": op} | {name: request[name] for name in ("dtype", "device", "samples", "seed")}
        content = {"schema": SCHEMA, **settings, "reference": reference, "rows": [as_data(row) for row in rows]}
        write_json(json_path, content, force=force)
    if plot:  # after the JSON is written, so that the measurements are kept even if there is nothing to draw
        errors = [
            ErrorsOfKernel(row.kernel, row.label, row.worst.errors if row.measures else ())
            for row in rows
            if row.status != ABSENT
        ]
        if not any(entry.errors for entry in errors):
            raise UsageError("no kernel was measured: there is nothing to draw")
        try:
            figure = kernel_errors(errors, title=f"Error of {op} kernels · {about}")
            written = save(figure, plot.with_suffix(""), [plot.suffix[1:]])[0]
        except OSError as error:
            raise UsageError(f"{plot} cannot be written: {error.strerror}") from None
        console(stderr=json_path == "-").print(f"Wrote {written}", soft_wrap=True)
    return 3 if any(row.status == FAILED for row in rows) else 0


def _table(rows: Sequence[CheckRow], *, verbose: bool) -> Table:
    """Return a table with a row for the worst values of each kernel; with `verbose`, one for each of its input sets."""
    check_table = table(
        "kernel", "inputs" if verbose else "worst on",
        ">max ULP", ">p99", ">median", ">rho", ">bias", ">z", ">differs", "non-finite, remarks",
    )  # fmt: skip
    shown = [(summary([row]), row.label) for row in rows] if verbose else [(row, "") for row in by_kernel(rows)]
    for row, label in shown:
        bias = row.bias if row.max_ulp is not None else None
        towards = f" {bias.towards}" if bias is not None and abs(bias.z) > BIASED else ""
        check_table.add_row(
            row.kernel,
            row.where or label,  # `where` is empty if nothing was measured
            *(_digits(value) for value in (row.max_ulp, row.p99_ulp, row.median_ulp)),
            Text(_digits(row.rho), style="bold red" if row.rho is not None and row.rho > FAULT else ""),
            "-" if bias is None else _digits(bias.ulp),
            "-" if bias is None else f"{bias.z:.1f}{towards}",
            "-" if row.differs is None else f"{100 * row.differs:.3g} %",
            Text(row.remarks, style="bold red" if row.status == FAILED else ""),
        )
    return check_table


def _digits(value: float | None) -> str:
    """Format a number with three significant digits, or as an integer if its magnitude is at least 100.

    A magnitude below 1e-3, or of at least 1e7, gets two significant digits.
    """
    if value is None:
        return "-"
    if value == 0 or abs(value) < 1e-3 or abs(value) >= 1e7:
        return "0" if value == 0 else f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def sweep(op: str, dtype: str, *, plot: Path | None, force: bool, json_path: str | None, **request: Any) -> int:
    """Measure, print and write what the options of `kernels sweep` request; return the exit code."""
    errors = console(stderr=True)
    if plot is not None and plot.suffix != ".png":
        raise UsageError(f"--plot {plot} must end in .png")
    refuse_outputs(plot, json_path, force=force)

    def say(text: str) -> None:
        errors.print(f"numdrift: {text}", soft_wrap=True)

    result = swept(op, dtype, say=say, shown=sweep_bar, **request)
    if json_path != "-":
        console().print(f"{_title(result)} · reference {result.reference}", soft_wrap=True)
        _show_swept(result)
    if plot:
        _draw(result, plot)
        (console() if json_path != "-" else errors).print(f"Wrote {plot}", soft_wrap=True)
    if json_path:
        content = {
            "schema": 1,
            "op": result.subject.op,
            "dtype": result.subject.encoding.name,
            "varied": result.subject.varied,
            "held": {
                name: value if isinstance(value, (int, float, str)) else str(value)
                for name, value in result.subject.held
            },
            "range": None if result.domain.is_whole else result.domain.described(),
            "torch": torch.__version__,
            "kernels": [as_json(kernel) for kernel in result.found],
            "zoom": result.zoom.as_json() if result.zoom else None,
            "reference": result.reference,
        }
        write_json(json_path, content, force=force)
    return 0


def _title(result: SweptKernels) -> str:
    subject, domain = result.subject, result.domain
    inputs = "all inputs" if domain.is_whole else f"inputs {domain.low:g} to {domain.high:g}"
    return f"{subject.op} · {subject.encoding.name} · {inputs} as {subject.described()} · torch {torch.__version__}"


def _show_swept(result: SweptKernels) -> None:
    """Print one row per kernel, and the time of each kernel that was measured on at least TIMED_INPUTS inputs."""
    rows = table(
        "kernel", ">inputs", ">max ULP", "at", ">mean ULP", ">bias ULP",
        ">not correctly rounded", ">above 1 ULP", ">non-finite disagreements",
    )  # fmt: skip
    for kernel in result.found:
        shares = [100 * kernel.share(count) for count in ("not_correct", "above_one")]
        disagreeing = kernel.total("disagree")
        rows.add_row(
            kernel.kernel,
            f"{kernel.total('count'):,}",
            _ulp(kernel.max_ulp),
            _place(kernel, kernel.max_at),
            _ulp(kernel.mean_ulp),
            number(kernel.bias_ulp),
            *("0" if share == 0 else f"{share:.3g} %" for share in shares),
            f"{disagreeing:,}, first {_place(kernel, kernel.disagree_at)}" if disagreeing else "0",
        )
    console().print(rows)
    for kernel in result.found:
        count = kernel.total("count")
        if count >= TIMED_INPUTS:
            inputs = "2^32" if count == 1 << 32 else f"{count:,}"
            took = f"{kernel.candidate.label}: {inputs} inputs in {kernel.progress.wall:.3g} s"
            if kernel.slowdown is not None:
                took += f", {kernel.slowdown:.1f} times what aten.{kernel.candidate.subject.op} alone takes"
            console().print(took, soft_wrap=True)


def _ulp(error: float) -> str:
    return f"{error:.4f}" if error < 100 else f"{error:.4g}"


def _place(errors: KernelErrors, pattern: int | None) -> str:
    if pattern is None:
        return "-"
    return f"{errors.encoding.value(pattern):.9g} ({errors.encoding.hexadecimal(pattern)})"


def _draw(result: SweptKernels, path: Path) -> None:
    """Draw each kernel's largest error in each bin of inputs, and the errors of all inputs around the worst input."""
    envelopes = []
    for kernel in result.found:
        bins = BinErrors.of(kernel)
        centers = bins.centers(kernel.encoding)
        # the axis is logarithmic on both sides of 0, so 0 itself has no place on it
        drawn = (bins.records["measured"] > 0) & (centers != 0) & np.isfinite(centers)
        envelopes.append(UlpEnvelope(kernel.kernel, centers[drawn], bins.records["max_ulp"][drawn], bins.mean[drawn]))
    zoom, closer = result.zoom, None
    if zoom is not None:
        value = zoom.encoding.value(zoom.center)
        center = f"the worst of {zoom.kernel}, {value:.9g} ({zoom.encoding.hexadecimal(zoom.center)})"
        closer = UlpZoom(center, zoom.offsets, zoom.inputs, zoom.errors)
    figure = ulp_error(envelopes, title=_title(result), zoom=closer)
    try:
        save(figure, path.with_suffix(""), ("png",))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
