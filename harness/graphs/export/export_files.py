"""The graphs of a run as files that Netron opens."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

from ...errors import CollisionError, JournalError, UsageError
from ...records.graph_record import STAGES, Graph
from ..culprit_marks import Mark
from ..run_graphs import RunGraphs
from .onnx_model import to_onnx

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")

Marks = Callable[[Graph], Mapping[str, Mark]]
"""Gives the marks of a graph's nodes by their names."""


def no_marks(graph: Graph) -> Mapping[str, Mark]:
    return {}


def export_graphs(
    graphs: RunGraphs, folder: Path | None = None, marks: Marks = no_marks, *, force: bool = True
) -> list[Path]:
    """Write every graph of a run as `<name>.onnx` into a folder, by default the run's own of graphs.

    Each file is put in place in one piece. Raises CollisionError, before anything is written, for a file that
    exists where `force` is off, and JournalError for a graph that cannot be read."""
    target = graphs.path if folder is None else folder
    names = [entry.name for entry in graphs.entries if entry.stage in STAGES]
    paths = {name: onnx_path(graphs, target, name) for name in dict.fromkeys(names)}
    for path in paths.values():
        if path.exists() and not force:
            raise CollisionError(path, "choose another folder, or replace it with --force")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            graph = graphs.graph(name)
            write_onnx(graph, path, marks(graph), read_from=graphs.path / f"{name}.json")
    except OSError as error:
        raise UsageError(f"{error.filename or target} cannot be written: {error.strerror}") from None
    return list(paths.values())


def write_onnx(graph: Graph, path: Path, marks: Mapping[str, Mark], *, read_from: Path) -> None:
    """Put the model of a graph in place in one piece. Raises OSError, and JournalError for a record that has
    the fields of a graph but not their types; `read_from` is where it comes from."""
    try:
        model = to_onnx(graph, marks)
    except (TypeError, ValueError, AttributeError) as error:
        raise JournalError(read_from, f"is no graph: {error}") from error
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        onnx.save_model(model, written, format="protobuf")
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def onnx_path(graphs: RunGraphs, folder: Path, name: str) -> Path:
    """Where a graph goes; a name out of a run of unknown origin may not lead out of the folder."""
    if not NAME.fullmatch(name):
        raise JournalError(graphs.path, f"has a graph of the name {name!r}, which is no file name")
    return folder / f"{name}.onnx"
