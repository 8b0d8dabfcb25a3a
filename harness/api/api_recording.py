"""`numdrift.record`: records a training run in this process: in a notebook, or in a program with its own loop."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import UsageError, nearest
from ..launch.batch_kernels import check_kernels, own_kernels
from ..launch.execute_batch import close_run
from ..launch.guest_process import Launch
from ..launch.prepared_runs import PreparedRun
from ..launch.running_process import ProcessEnd
from ..records import frames
from ..records.modes.mode_spec import ModeSpec, parse_mode
from ..records.run.run_config import RunConfig
from ..records.run.run_request import LEVELS, Level, requested
from ..runs.manifest import RunManifest
from ..runs.recorded_run import RecordedRun, load_run, runs_in
from ..runs.run_layout import RunFolder, check_name, choose_investigation
from ..script import script_api as script
from ..tape.origin import names_in

if TYPE_CHECKING:
    from ..recorder.session import Session


class Recording:
    """The recording that `record` makes in this process, for the duration of a `with` block.

    `path` is the run's folder; `run` is the recorded run, available after the block.
    """

    def __init__(
        self, spec: ModeSpec, folder: RunFolder, config: RunConfig, manifest: RunManifest, force: bool
    ) -> None:
        self.path = folder.path
        self._spec = spec
        self._folder = folder
        self._config = config
        self._manifest = manifest
        self._force = force
        self._names: frozenset[str] = frozenset()
        self._session: Session | None = None
        self._began = 0.0
        self._run: RecordedRun | None = None

    @property
    def run(self) -> RecordedRun:
        """The recorded run. Raises UsageError before the block has ended."""
        if self._run is None:
            raise UsageError("the recording has not ended; its run is available after the `with` block")
        return self._run

    def log(self, **values: Any) -> None:
        """Log values of this step, as `numdrift.log` does."""
        script.log(**values)

    def step(self) -> None:
        """End a step, as `numdrift.step` does."""
        script.step()

    def __enter__(self) -> Self:
        sessions = importlib.import_module("numdrift.harness.recorder.session")  # imports torch
        sessions.refuse_what_needs_a_process(self._spec)
        self._folder.create(force=self._force)
        self._folder.config.write_text(json.dumps(self._config.to_json(), indent=2) + "\n", encoding="utf-8")
        self._manifest.write(self._folder.manifest)
        session: Session = sessions.Session(self._config)
        self._began = time.monotonic()
        try:
            session.open(names_of(sys._getframe(1)))  # the names in the code that contains the `with` statement
        except BaseException:  # including Ctrl-C: a run whose status stays "running" would count as killed
            self._end(2)
            raise
        self._session = session
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        self._end(self._session.close(error))

    def _end(self, exit_code: int) -> None:
        end = ProcessEnd(exit_code, "exited", time.monotonic() - self._began)
        launch = Launch(
            name=self._spec.name,
            spec=self._spec,
            config=self._folder.config,
            events=self._folder.journal / frames.EVENTS,
            stdout=self._folder.stdout,
            stderr=self._folder.stderr,
        )
        close_run(PreparedRun(self._folder, self._manifest, self._config, launch), end)
        self._run = load_run(self.path)

    def __repr__(self) -> str:
        state = "not begun" if not self._began else "under way" if self._run is None else self._run.manifest.status
        return f"Recording({str(self._spec)!r}, {str(self.path)!r}, {state})"


def record(
    mode: str = "cpu",
    out: Path | str = "runs",
    name: str | None = None,
    *,
    suffix: str = "",
    record: Level = "params",
    steps: str = "",
    keep_params: str = "all",
    keep_budget: float = 256.0,
    kernels: Mapping[str, Path | str] | None = None,
    reproducer: str | None = None,
    force: bool = False,
) -> Recording:
    """Record the training in a `with` block, in this process and in one mode.

        with numdrift.record(mode="cpu", name="first", force=True) as recording:
            train(model)
        recording.run.losses()

    `mode` is one mode with its settings, as for `numdrift run --mode`: `cpu`, `compile`,
    `"bad=cpu,kernel.tanh_backward=bf16"`. In compile mode the outermost modules are compiled at their first call, and
    are eager again after the block. Modules and optimizers that existed before the block are recorded as well. Nothing
    is seeded: to make two recordings draw the same random numbers, seed in the function that trains
    (`torch.manual_seed(0)`).

    The run's folder is `out`/`name`/MODE, as for `numdrift run`. `name` is the investigation's name (default: the name
    of the notebook or program, with a number if that name is taken), `suffix` tags the batch, and `force` replaces an
    existing run. `record`, `steps`, `keep_params` and `keep_budget` (in MiB) are the options of `numdrift run`.
    `kernels` maps ops to your own kernels. `reproducer` names the program that is recorded.

    An exception in the block propagates, and the run's status is `crashed`. Raises UsageError for a mode that needs its
    own process, and if this process is already being recorded."""
    frame = sys._getframe(1)
    spec = parse_mode(mode)
    if record not in LEVELS:
        raise UsageError(f"record={record!r} is not a level; {nearest(record, LEVELS)}")
    named = Path(reproducer or reproducer_of(frame))
    own = own_kernels(kernels)
    check_kernels([spec], own, ())
    investigation = choose_investigation(Path(out), named, name, suffix)
    folder = investigation.run(spec.name, check_name("suffix", suffix) if suffix else "")
    if not force:
        folder.refuse_collision()
    config = RunConfig(
        script=frame.f_code.co_filename,
        mode=spec,
        journal=str(folder.journal.absolute()),
        kernels=tuple((op, str(path.absolute())) for op, path in own),
        **requested({"record": record, "steps": steps, "keep_params": keep_params, "keep_budget": keep_budget}),
    )
    return Recording(spec, folder, config, _manifest_of(config, folder, named, suffix), force)


def _manifest_of(config: RunConfig, folder: RunFolder, program: Path, suffix: str) -> RunManifest:
    """Return the manifest of a new recording of a program or notebook."""
    # without a file (a notebook whose path is unknown), hash the program's name
    content = program.read_bytes() if program.is_file() else str(program).encode()
    return RunManifest(
        mode=config.mode.name,
        spec=str(config.mode),
        suffix=suffix,
        reproducer=str(program),
        script_sha256=hashlib.sha256(content).hexdigest(),
        arguments=[],
        record=config.record,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        position=len(runs_in(folder.path.parent)),
        pickle=folder.pickle.name,
        pid=os.getpid(),
        in_process=True,
    )


def reproducer_of(frame: FrameType) -> str:
    """Return a name for the caller's code: the path of its notebook if known, else the path of its file."""
    module_names = frame.f_globals
    # VS Code puts the notebook's path in a global variable, Jupyter in the environment; a program has `__file__`
    for place in (
        module_names.get("__vsc_ipynb_file__"),
        os.environ.get("JPY_SESSION_NAME"),
        module_names.get("__file__"),
    ):
        if isinstance(place, str) and place:
            return place
    return "notebook" if "get_ipython" in module_names else "session"


def names_of(frame: FrameType) -> frozenset[str]:
    """Return the names that occur in the caller's code and in the functions and classes of its module."""
    codes, module = [frame.f_code], frame.f_globals.get("__name__")
    for value in list(frame.f_globals.values()):  # a copy: another thread may define something during the loop
        if isinstance(value, FunctionType) and value.__module__ == module:
            codes.append(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            codes += [member.__code__ for member in vars(value).values() if isinstance(member, FunctionType)]
    return frozenset().union(*(names_in(code) for code in codes))
