"""torch_xla (PJRT), usually in a separate interpreter (`xla,python=/path/to/python`), and the mark-step policies.

A policy determines where the pending graph is cut and executed:

    auto    where the script itself calls a cutting function of torch_xla; if it never does, the same as `phase`
    phase   before the first call of a model, after each backward and after each optimizer step, in addition to the
            script's own cuts
    step    before the first call of a model, and after each optimizer step only; the script's own cuts do nothing
    off     nowhere; one sync at the end of each step then computes the values that a run records, and executes
            everything else that is pending

With `draws=cpu` or `fallback_random=on`, random numbers are those of eager mode, drawn on the CPU and copied to the
device. Otherwise the device draws its own.

With `execute=op` each op is a separate graph, compiled and executed when the op is called (torch_xla's eager mode).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...errors import UsageError
from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Moment, ScriptFacts
from ...records.modes.mode_registry import XLA
from ...records.modes.mode_spec import ModeSpec
from ...records.tools.graph_record import xla_modules
from ...tape.recording.step_recorder import RecordingRequest, StepRecorders
from ...torch_private.deferred.xla import (
    around_step_marker,
    execute_pending,
    execute_xla_op_by_op,
    read_xla,
    show_xla_blocks,
    start_xla,
    sync_xla,
    xla_generator_kept,
)
from ..cpu_draws import draw_on_the_cpu
from ..deferring.deferring_mode import DeferringMode

PACKAGE = "torch_xla"

CUTS = {"mark_step", "sync", "optimizer_step", "MpDeviceLoader", "ParallelLoader", "StepTrace"}
"""The names in torch_xla by which a script marks the end of its graphs."""


class XlaMode(DeferringMode):
    """The mode that executes on the device `xla` and reads values only once a cut has produced them."""

    device = "xla"

    capabilities = XLA

    named_adapter = "xla.adapter:XlaAdapter"

    def __init__(self, spec: ModeSpec) -> None:
        super().__init__(spec)
        self._cuts_itself = self._is_undecided = False
        self._has_model = False

    def require_here(self) -> None:
        require_xla()

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        require_xla()
        start_xla(xla_modules())
        spec = self.eager.spec
        self.eager.swaps = swaps
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        if spec.seed is not None:
            torch.manual_seed(spec.seed)
        swaps.install(self.device)
        if self.policy == "auto":
            uses_xla = script.imports(PACKAGE)
            self.policy = "script" if uses_xla and CUTS & script.names else "phase"
            # A use of `torch_xla.step` cannot be recognised by its name, since `step` occurs in every training script.
            # It is recognised by a cut before the first backward.
            self._is_undecided = uses_xla and self.policy == "phase"
        self._patches.also(around_step_marker(self._script_cuts))
        if spec.fallback_random == "on" or spec.draws == "cpu":
            self._patches.also(draw_on_the_cpu(self.device))
        self._patches.also(show_xla_blocks())
        if spec.execute == "op":
            execute_xla_op_by_op(True)
            self._patches.also(lambda: execute_xla_op_by_op(False))

    def adopt(self, module: torch.nn.Module) -> None:
        if not self._has_model and self.policy in ("phase", "step"):
            # A run that keeps the state of step 0 executes the pending work here. All other runs do the same, so that
            # their graphs are equal.
            self.execute()
        self._has_model = True
        super().adopt(module)

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        if moment == "backward" and self._waiting and self.policy == "script":
            # The script has made no cut since the last step. That step's values must be read before they are replaced.
            self._cut()
        self._is_undecided = False
        super().close(moment, settled)

    def _has_values(self, moment: Moment) -> bool:
        return self.eager.spec.execute == "op" or super()._has_values(moment)

    def capture(self, request: CaptureRequest) -> Capture:
        capturing = importlib.import_module("numdrift.harness.backends.xla.capture")
        capture: Capture = capturing.XlaCapture(request)
        return capture

    def snapshots(self, camera: Any, circumstances: Any, bound: Callable[[], Mapping[str, torch.Tensor]]) -> Any:
        cuts = importlib.import_module("numdrift.harness.backends.xla.cut_executions")
        return cuts.XlaCuts(camera, circumstances, self, bound, op_by_op=self.eager.spec.execute == "op")

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self.policy == "off":
            sync_xla(tensors)
        return read_xla(tensors)

    def execute(self) -> None:
        with xla_generator_kept():
            super().execute()

    def step_recorders(self, request: RecordingRequest) -> StepRecorders:
        """Return recorders of the ops that torch_xla executes (see `taped_step`)."""
        recording = importlib.import_module("numdrift.harness.backends.xla.taped_step")
        recorder, unreadable = recording.XlaStepRecorder, set[tuple[str, int]]()
        return StepRecorders(lambda step: recorder(step, request.script, self.observe_cuts, unreadable))

    def _script_cuts(self, mark: Callable[[], None]) -> None:
        """Handle a request to execute all pending work, from the script or from `_cut_by` below."""
        if self._cuts_itself:
            mark()
            return
        if self._is_undecided:
            self.policy = "script"
        if self.policy in ("script", "phase"):
            self._cut_by(mark)

    def _cut(self) -> None:
        self._cut_by(execute_pending)

    def _cut_by(self, mark: Callable[[], None]) -> None:
        def marking() -> None:
            self._cuts_itself = True
            try:
                mark()
            finally:
                self._cuts_itself = False

        super()._cut_by(marking)


def require_xla() -> None:
    """Raise UsageError if torch_xla is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise UsageError(
            f"mode 'xla': torch_xla is not installed alongside torch {torch.__version__}; create an environment for it "
            "with `bash scripts/xla`, or add python=/path/to/its/python to the mode"
        )
