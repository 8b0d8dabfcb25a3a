"""`numdrift view`: shows the recorded runs in a browser on this machine."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click

from ..api.comparing import compared
from ..errors import NumdriftError, RunNotFound, UsageError
from ..graphs.diff.graph_comparison import compare_graphs
from ..graphs.run_graphs import graphs_of
from ..report.pair_graphs import page_of_difference
from ..report.report_page import page_of
from ..report.rows import report_from, report_of
from ..report.view_page import view_page, view_rows
from ..runs.recorded_run import RecordedRun, investigations, load_run, runs_in, with_distinct_labels
from .output import console

LOOPBACK = "127.0.0.1"

EXAMPLES = """\b
Examples:
  numdrift view
  numdrift view runs --port 8765 --no-browser
  ssh -L 8765:127.0.0.1:8765 machine     # and then http://127.0.0.1:8765 here

\b
The page is served only to this machine, until you press Ctrl-C. It lists investigations with their answers, shows
the progress of runs, opens reports, and compares any two runs. It changes nothing in FOLDER.
"""

Asked = dict[str, str]


@click.command(epilog=EXAMPLES, help="Show the investigations in FOLDER (default: runs) in a browser.")
@click.argument("folder", required=False, default="runs", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="The port to serve on (default: any free port).")
@click.option("--no-browser", is_flag=True, help="Serve the page without opening a browser.")
def command(folder: Path, port: int | None, no_browser: bool) -> int:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; `numdrift run` and `numdrift investigate` create runs/")
    try:
        server = served(folder, port or 0)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}; choose another --port") from None
    address = f"http://{LOOPBACK}:{server.server_port}/"
    console().print(f"Serving {folder} at {address} (Ctrl-C ends it)", soft_wrap=True)
    if not no_browser:
        webbrowser.open(address)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def served(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of the folder's pages on the loopback address; port 0 chooses a free port. Raises OSError."""
    server = ThreadingHTTPServer((LOOPBACK, port), BaseHTTPRequestHandler)
    own = {f"{name}:{server.server_port}" for name in (LOOPBACK, "localhost")}
    pages: dict[str, Callable[[Asked], str]] = {
        "/": lambda _: view_page(folder),
        "/rows": lambda _: view_rows(folder),
        "/report": lambda fields: page_of(report_of(_investigation(folder, fields.get("investigation", "")))),
        "/compare": lambda fields: _comparison(folder, fields),
        "/graphs": lambda fields: _graphs(folder, fields),
    }

    class Pages(BaseHTTPRequestHandler):
        """The handler of requests, which serves pages only if a request's Host is the server's own address.

        A foreign page whose name resolves to this machine (DNS rebinding) sends a different Host.
        """

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            fields = {name: values[-1] for name, values in parse_qs(url.query).items()}
            page = pages.get(url.path)
            if self.headers.get("Host") not in own:
                self._answer(403, "this address is not served here", "text/plain")
            elif page is None:
                self._answer(404, "there is no such page", "text/plain")
            else:
                try:
                    self._answer(200, page(fields), "text/html")
                except NumdriftError as error:
                    self._answer(404 if isinstance(error, RunNotFound) else 400, str(error), "text/plain")

        def _answer(self, code: int, text: str, kind: str) -> None:
            content = text.encode("utf-8", "replace")
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: the terminal needs no line for each request."""

    server.RequestHandlerClass = Pages
    return server


def _investigation(folder: Path, name: str) -> Path:
    """Return the folder's investigation with this name. Raises RunNotFound.

    Names are compared, because a name taken as a path could lead out of the folder.
    """
    for path in investigations(folder):
        if path.name == name:
            return path
    raise RunNotFound(f"{folder} contains no investigation {name!r}")


def _run(folder: Path, path: str) -> RecordedRun:
    investigation, _, name = path.partition("/")
    for run in runs_in(_investigation(folder, investigation)):
        if run.path.name == name:
            return load_run(run.path)
    raise RunNotFound(f"{folder} contains no run {path!r}")


def _comparison(folder: Path, fields: Asked) -> str:
    """Return the page that compares two runs by their recorded data: nothing is run."""
    a, b = with_distinct_labels(_run(folder, fields.get("a", "")), _run(folder, fields.get("b", "")))
    _, findings = compared([(a, b)])
    return page_of(report_from(findings, [a, b], a.path.parent))


def _graphs(folder: Path, fields: Asked) -> str:
    a, b = (graphs_of(_run(folder, fields.get(side, ""))) for side in ("a", "b"))
    return page_of_difference(compare_graphs(a, b), a, b)
