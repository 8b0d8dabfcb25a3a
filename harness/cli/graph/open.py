"""`numdrift graph open`: opens one graph in Netron, or draws it into a file."""

from __future__ import annotations

import importlib
import logging
import socket
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from ...api.chosen_runs import choose_graph, graphs_of_only_run
from ...errors import CollisionError, JournalError, NotAvailable, UsageError
from ...graphs.culprit_marks import Mark, marks_for
from ...graphs.drawing.draw import draw
from ...graphs.export.onnx_model import onnx_path, write_onnx
from ...graphs.run_graphs import RunGraphs
from ...records.tools.graph_record import SCHEMA, STAGES, Graph
from ...runs.recorded_run import is_there
from ..command_options import force_option, out_option, run_mode_option, target_argument
from ..output import console

LOOPBACK = "127.0.0.1"

EXAMPLES = """\b
Examples:
  numdrift graph open runs/sam_tanh/compile_main
  numdrift graph open runs/sam_tanh --mode lazy --phase backward
  numdrift graph open runs/sam_tanh --mode compile --phase backward --post --png backward.png
  numdrift graph open runs/sam_tanh --mode compile --graph 0-backward-post --port 8080 --no-browser

\b
Without options, the command opens the first forward graph as it was before the compiler. Netron is served only to
this machine, until you press Ctrl-C. If the browser is online, Netron's page reports its use to Google Analytics.
--png and --svg need no browser. Ops that an investigation found to be culprits are marked.
"""


@click.command(epilog=EXAMPLES, help="Open a graph of a run in Netron, or draw it into a file.")
@target_argument
@run_mode_option
@click.option("--step", type=click.IntRange(min=0), help="A step that ran the graph (default: the first).")
@click.option("--phase", metavar="PHASE", help="The phase of the graph: forward, backward or optimizer.")
@click.option("--pre", is_flag=True, help="Open the graph as it was before the mode's compiler.")
@click.option("--post", is_flag=True, help="Open the graph as the compiler left it, with its kernels.")
@click.option("--dynamo", is_flag=True, help="Open the graph as dynamo captured it.")
@click.option("--stream", is_flag=True, help="Open the ops outside of compiled graphs.")
@click.option("--graph", "name", metavar="NAME", help="The graph with this name in `graph list`.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to serve Netron on (default: any free port).")
@click.option("--no-browser", is_flag=True, help="Serve Netron without opening a browser.")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH", help="Draw a PNG.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH", help="Draw an SVG.")
@out_option
@force_option
def command(
    target: str | None,
    mode: str | None,
    out: Path,
    png: Path | None,
    svg: Path | None,
    port: int | None,
    no_browser: bool,
    force: bool,
    **wanted: Any,
) -> int:
    stages = [stage for stage in STAGES if wanted.pop(stage)]
    if len(stages) > 1:
        raise UsageError(f"{' and '.join(f'--{stage}' for stage in stages)} cannot be combined: choose one of them")
    graphs = graphs_of_only_run(target, out, mode)
    chosen, *later = choose_graph(graphs, stage=stages[0] if stages else None, **wanted)
    if later:
        listed = ", ".join(f"{entry.name} ({entry.nodes:,} nodes)" for entry in later)
        console(stderr=True).print(
            f"This is {chosen.name}, the first of {len(later) + 1} such graphs; name another with --graph: {listed}",
            soft_wrap=True,
        )
    graph = graphs.graph(chosen.name)
    marks = marks_for(graphs.run, graph)
    drawn = {kind: path for kind, path in (("png", png), ("svg", svg)) if path is not None}
    if drawn:
        _draw(graphs, graph, marks, drawn, force=force)
    else:
        _serve(graphs, graph, marks, port, browse=not no_browser)
    return 0


def _draw(
    graphs: RunGraphs, graph: Graph, marks: Mapping[str, Mark], drawn: Mapping[str, Path], *, force: bool
) -> None:
    for path in drawn.values():  # check every path before the first file is written
        if is_there(path) and not force:
            raise CollisionError(path, "choose another path, or replace it with --force")
    for kind, path in drawn.items():
        try:
            left_out = draw(graph, marks, path, kind)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise JournalError(_record(graphs, graph), f"is not a graph record of schema {SCHEMA}") from error
        if left_out:
            console().print(f"{graph.name} is large; the drawing shows {left_out}", soft_wrap=True)
        console().print(f"Wrote {path}", soft_wrap=True)


def _serve(graphs: RunGraphs, graph: Graph, marks: Mapping[str, Mark], port: int | None, *, browse: bool) -> None:
    """Serve the graph until Ctrl-C. A graph with marks is written to a temporary folder, not into the run's folder."""
    try:
        netron = importlib.import_module("netron")
    except ImportError as error:
        raise NotAvailable("Netron", str(error), "pip install netron, or draw the graph with --png") from None
    logging.getLogger("netron").setLevel(logging.WARNING)
    # bind the port before Netron does, so that an unavailable port gets a clear message; port 0 is any free port
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port or 0))
        except PermissionError:
            raise UsageError(f"port {port} needs rights that you do not have: choose a port from 1024 up") from None
        except OSError as error:
            why = error.strerror.lower() if error.strerror else str(error)
            raise UsageError(f"port {port} is not available ({why}): choose another with --port") from None
        address = (LOOPBACK, int(probe.getsockname()[1]))
    with tempfile.TemporaryDirectory(prefix="numdrift-") as temporary:
        path = onnx_path(graphs, Path(temporary) if marks else graphs.path, graph.name)
        try:
            write_onnx(graph, path, marks, read_from=_record(graphs, graph))
            netron.start(str(path), address=address, browse=browse)
        except OSError as error:
            raise UsageError(f"{path} cannot be served: {error.strerror}") from None
        url = f"http://{LOOPBACK}:{address[1]}"
        console().print(f"Serving {graph.name} of {graphs.run.path} at {url} (Ctrl-C ends it)", soft_wrap=True)
        try:
            netron.wait()
        finally:
            netron.stop(address)


def _record(graphs: RunGraphs, graph: Graph) -> Path:
    return graphs.path / f"{graph.name}.json"
