"""Measurements of one command each: kernels, a snapshot, a profile, metrics, a device that is not there, a GPU left alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .investigations import GPT, TRANSFORMER
from .laboratory import Laboratory, Measured, failed
from .machine import processes_on_gpu

KERNELS = "tests/accelerator/kernels_measured.py"
SHORT = ("--", "--steps", "5")


def kernels(lab: Laboratory, name: str, limit: float) -> Measured:
    """Measure every kernel of the catalogue on the device; none may fail."""
    done = lab.commands.python(KERNELS, lab.device.name, "float32", "bfloat16", limit=limit)
    if done.code != 0:
        return failed(done)
    found: dict[str, dict[str, str]] = json.loads(done.out.splitlines()[-1])["not measured"]
    reasons = {f"{dtype} {kernel}": why for dtype, rows in found.items() for kernel, why in rows.items()}
    broken = {kernel: why for kernel, why in reasons.items() if why.startswith("failed") and "would draw" not in why}
    details = {"not measured": len(reasons), "failed": broken}
    first = next(iter(broken.items()), ("", ""))
    return Measured(f"{len(broken)} failed", f"{first[0]}: {first[1]}" if broken else "", details)


def snapshot(lab: Laboratory, name: str, limit: float) -> Measured:
    """Take a step as snapshots, and execute each again where it was taken and on the CPU."""
    modes = lab.modes("cuda")
    taking = ("snapshot", "take", TRANSFORMER.path, *modes, "--steps", "1", "--then", "stop")
    done = lab.commands.numdrift(
        *taking, "--out", str(lab.folder), "--name", name, "--json", "-", *SHORT, limit=limit / 3
    )
    if done.code != 0:
        return failed(done)
    there, here, wrong = list[str](), list[str](), list[str]()
    for taken in json.loads(done.out)["runs"][0]["snapshots"]:
        for mode, texts in ((modes[1], there), ("cpu", here)):
            again = lab.commands.numdrift(
                "snapshot", "replay", taken["path"], "--mode", mode, "--json", "-", limit=limit / 3
            )
            if again.code not in (0, 1):
                return failed(again)
            answer: dict[str, Any] = json.loads(again.out)
            texts.append("identical" if answer["identical"] else "within rounding" if answer["holds"] else "beyond")
            if not answer["holds"] or (mode != "cpu" and not answer["identical"]):
                wrong.append(f"{taken['graph']} in mode {mode}: {answer['text']}")
    found = f"there {_worst(there)}, on the CPU {_worst(here)}"
    return Measured(found, "; ".join(wrong), {"executions": len(there)})


def _worst(texts: list[str]) -> str:
    return next((one for one in ("beyond", "within rounding", "identical") if one in texts), "nothing")


def profile(lab: Laboratory, name: str, limit: float) -> Measured:
    """Trace two steps in both modes; the device's own times have to be there."""
    modes = lab.modes("cuda", "compiled=compile@cuda")
    done = lab.run(
        name, "profile", TRANSFORMER.path, *modes, "--steps", "3-4", "--json", "-", "--quiet", *SHORT, limit=limit
    )
    if done.code != 0:
        return failed(done)
    found, wrong, details = list[str](), list[str](), dict[str, Any]()
    for run in json.loads(done.out)["runs"]:
        device, host = run["device"] or {}, sum(run["step_milliseconds"])
        busy = sum(row["milliseconds"] for row in device.get("work", ()))
        found.append(f"{run['mode']}: {host:.1f} ms, device {busy:.1f} ms")
        details[run["mode"]] = {"milliseconds": host, "device milliseconds": busy, "rows": len(device.get("work", ()))}
        if run["problem"] or not device or device["problem"] or not busy:
            why = run["problem"] or device.get("problem") or "no times of the device"
            wrong.append(f"{run['mode']}: {why}")
    return Measured("; ".join(found), "; ".join(wrong), details)


def metrics(lab: Laboratory, name: str, limit: float) -> Measured:
    """Measure copies and device memory in both modes."""
    modes = lab.modes("cuda", "compiled=compile@cuda")
    done = lab.run(name, "run", TRANSFORMER.path, *modes, "--metrics", "--quiet", *SHORT, limit=limit)
    if done.code != 0:
        return failed(done)
    shown = lab.commands.numdrift("metrics", str(lab.folder / name), "--json", "-", "--quiet", limit=limit / 3)
    if shown.code != 0:
        return failed(shown)
    found, wrong, details = list[str](), list[str](), dict[str, Any]()
    for run in json.loads(shown.out)["runs"]:
        copies, peak = run["to_device"]["count"] + run["from_device"]["count"], run.get("device_peak_bytes") or 0
        found.append(f"{run['mode']}: {copies} copies, {peak / 2**20:.0f} MiB")
        details[run["mode"]] = {"copies": copies, "device peak bytes": peak, "compiled": run["compiled"]["count"]}
        if not copies or not peak:
            wrong.append(f"{run['mode']}: {copies} copies and {peak} bytes are not an answer")
    return Measured("; ".join(found), "; ".join(wrong), details)


def refused(lab: Laboratory, name: str, limit: float) -> Measured:
    """Ask for a device that is not there; one line has to say so, and the other mode has to go on."""
    done = lab.run(name, "run", TRANSFORMER.path, *lab.modes("cpu", "cuda:7"), "--quiet", *SHORT, limit=limit)
    lines = [line for line in done.err.splitlines() if line.strip()]
    said = [line for line in lines if f"{lab.device.name}:7" in line]
    complete = lab.read(name, "cpu", "run.json")["status"] == "complete" if done.code == 3 else False
    wrong = ""
    if done.code != 3 or len(lines) != 1 or len(said) != 1 or not complete:
        wrong = f"exit code {done.code}, {len(lines)} lines, cpu {'goes on' if complete else 'does not go on'}: {done.err.strip()[:300]}"
    return Measured(f"exit code {done.code}, {len(lines)} line", wrong, {"said": said})


def left_alone(lab: Laboratory, name: str, limit: float) -> Measured:
    """Train in mode `cpu`, and see that no process of it is on the GPU; a training in mode `cuda` is the control."""
    seen = {}
    for mode in ("cpu", "cuda"):
        with _seen_on_gpu() as seen[mode]:
            done = lab.run(f"{name}-{mode}", "run", GPT.path, *lab.modes(mode), "--quiet", *SHORT, limit=limit / 2)
        if done.code != 0:
            return failed(done)
    details = {mode: len(found) for mode, found in seen.items()}
    if not seen["cuda"]:
        return Measured("unknown", "nvidia-smi names no process, not even that of mode cuda", details)
    on_gpu = f"{len(seen['cpu'])} of {len(seen['cpu'])} processes on the GPU"
    return Measured("no process on the GPU" if not seen["cpu"] else on_gpu, on_gpu if seen["cpu"] else "", details)


@contextmanager
def _seen_on_gpu() -> Iterator[set[int]]:
    """Collect the processes on the GPU that were not there before; nothing else may start any meanwhile."""
    before, found, over = processes_on_gpu(), set[int](), threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            found.update(processes_on_gpu() - before)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()
