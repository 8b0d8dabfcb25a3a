"""What `numdrift kernels check` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from numdrift.kernels.lab.arguments import Case, generated, overloads
from numdrift.kernels.lab.captured import captured
from numdrift.kernels.lab.check import ABSENT, FAILED, CheckRow, Subjects, check
from numdrift.kernels.lab.input_sets import CAPTURED, INPUT_SETS, parse_inputs
from numdrift.kernels.lab.measures import BIASED
from numdrift.kernels.lab.reference import describe
from numdrift.kernels.lab.report import SCHEMA, ErrorSummary, as_data, by_kernel, summary
from numdrift.kernels.registry import KernelRegistry, built_in, op_name
from numdrift.kernels.user import DEVICES
from numdrift.plots.appearance import save
from numdrift.plots.kernel_errors import ErrorsOfKernel, kernel_errors

from ...errors import CollisionError, NotAvailable, UsageError, nearest
from ..output import console, table, write_json
from .measuring_bars import LateBar

FAULT = 16.0
PLOT_FORMATS = ("png", "svg", "pdf")


def measure(options: dict[str, Any]) -> int:
    """Measure, print and write what the command's options ask for; the exit code."""
    registry = built_in()
    _check_outputs(options)
    op = options["op"]
    subjects = _subjects(registry, op, options["kernels"], options["timeout"])
    _check_device(options["device"])
    cases = _cases(op, options)
    operation = registry.operation(op)
    with LateBar() as bar:
        rows = check(operation, subjects, cases, seed=options["seed"], device=options["device"], progress=bar.update)
    reference = describe(operation, getattr(torch, options["dtype"]))
    about = f"{options['dtype']} on {options['device']}, {options['samples']:,} samples, seed {options['seed']}"
    if options["json_path"] != "-":
        out = console()
        out.print(f"{op}: reference {reference}; {about}\n", soft_wrap=True)
        out.print(_table(rows, verbose=options["verbose"]))
    if options["json_path"]:
        content = _json(rows, reference, options)
        write_json(options["json_path"], content, force=options["force"])
    if options["plot"]:
        written = _draw(rows, f"Error of {op} kernels · {about}", options["plot"])
        console(stderr=options["json_path"] == "-").print(f"Wrote {written}", soft_wrap=True)
    return 3 if any(row.status == FAILED for row in rows) else 0


def _check_outputs(options: dict[str, Any]) -> None:
    """Refuse, before anything is measured, outputs that could not be written."""
    plot: Path | None = options["plot"]
    if plot and plot.suffix.removeprefix(".") not in PLOT_FORMATS:
        raise UsageError(f"--plot {plot} must end in .png, .svg or .pdf")
    json_path = options["json_path"]
    for path in (plot, Path(json_path) if json_path and json_path != "-" else None):
        if path is None:
            continue
        if path.exists() and not options["force"]:
            raise CollisionError(path, "choose another file, or replace it with --force")
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError:
        known = nearest(device.partition(":")[0], DEVICES[1:])
        raise UsageError(f"--device {device} is no device of torch; {known}") from None
    if kind == "meta":
        raise UsageError("--device meta computes nothing that could be measured")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ImportError, NotImplementedError):
        why = "there is none here, or this torch was built without it"
        raise NotAvailable(f"--device {device}", why, "numdrift doctor says which modes work") from None


def _subjects(registry: KernelRegistry, op: str, named: Sequence[str], seconds: float) -> Subjects:
    """What was asked for, in order; all kernels without any, and `aten` beside files alone."""
    overloads(op)
    names: list[str] = []
    files: dict[str, Path] = {}
    for text in named:
        left, _, right = text.rpartition("=")
        if left and op_name(left) != op:
            raise UsageError(f"--kernel {text} is of op {left!r}, and {op!r} is checked; write {op}={right}")
        if right.endswith((".c", ".py")):
            if not Path(right).is_file():
                raise UsageError(f"--kernel {text}: there is no file {right}")
            path = files.setdefault(registry.name_of_own(op, Path(right)), Path(right))
            if path != Path(right):
                raise UsageError(f"{path} is named {path.stem!r} too; give {right} another name")
        elif "/" in right:
            raise UsageError(f"--kernel {text}: a kernel's file ends in .c or .py")
        else:
            names.append(right)
    if files and not names:
        names = ["aten"]
    if not named:
        return Subjects([one for one in registry.kernels(op) if not one.on_request])
    known = [registry.kernel(op, name) for name in dict.fromkeys(names)]
    return Subjects(known, tuple(files.values()), seconds)


def _cases(op: str, options: dict[str, Any]) -> list[Case]:
    recorded: Path | None = options["recorded"]
    names = parse_inputs(options["inputs"]) if options["inputs"] is not None else tuple(INPUT_SETS)
    if CAPTURED in names and recorded is None:
        raise UsageError("--inputs captured needs --captured RUN_OR_FILE")
    sets = [name for name in names if name != CAPTURED]
    dtype: torch.dtype = getattr(torch, options["dtype"])
    calls = [captured(op, recorded)] if recorded else []
    try:
        return [*generated(op, sets, dtype, options["samples"], options["seed"]), *calls]
    except UsageError:
        if calls and options["inputs"] is None:
            return calls
        raise


def _table(rows: Sequence[CheckRow], *, verbose: bool) -> Table:
    shown = [summary([row]) for row in rows] if verbose else by_kernel(rows)
    where = "inputs" if verbose else "worst on"
    made = table(
        "kernel", where, ">max ULP", ">p99", ">median", ">rho", ">bias", ">z", ">differs", "non-finite, remarks"
    )  # fmt: skip
    for row, one in zip(rows if verbose else shown, shown, strict=True):
        label = row.label if isinstance(row, CheckRow) and not one.where else one.where
        made.add_row(*_cells(one, label))
    return made


def _cells(one: ErrorSummary, where: str) -> list[Text | str]:
    bias = one.bias if one.max_ulp is not None else None
    differs = "-" if one.differs is None else f"{100 * one.differs:.3g} %"
    return [
        one.kernel,
        where,
        _ulps(one.max_ulp),
        _ulps(one.p99_ulp),
        _ulps(one.median_ulp),
        Text(_ulps(one.rho), style="bold red" if one.rho is not None and one.rho > FAULT else ""),
        "-" if bias is None else _ulps(bias.ulp),
        Text("-" if bias is None else _z(bias.z, bias.towards)),
        differs,
        Text(one.remarks, style="bold red" if one.status == FAILED else ""),
    ]


def _z(z: float, towards: str) -> str:
    return f"{z:.1f} {towards}" if abs(z) > BIASED else f"{z:.1f}"


def _ulps(value: float | None) -> str:
    """Three digits, thousands in full."""
    if value is None:
        return "-"
    if value == 0 or abs(value) < 1e-3 or abs(value) >= 1e7:
        return "0" if value == 0 else f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _json(rows: Sequence[CheckRow], reference: str, options: dict[str, Any]) -> dict[str, Any]:
    settings = {name: options[name] for name in ("op", "dtype", "device", "samples", "seed")}
    return {"schema": SCHEMA, **settings, "reference": reference, "rows": [as_data(row) for row in rows]}


def _draw(rows: Sequence[CheckRow], title: str, path: Path) -> Path:
    errors = [
        ErrorsOfKernel(row.kernel, row.label, row.worst.errors if row.measures else ())
        for row in rows
        if row.status != ABSENT
    ]
    if not any(one.errors for one in errors):
        raise UsageError("no kernel was measured: there is nothing to draw")
    try:
        return save(kernel_errors(errors, title=title), path.with_suffix(""), [path.suffix[1:]])[0]
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
