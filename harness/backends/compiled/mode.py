"""Eager execution with torch.compile: root modules are compiled in place at their first call."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...errors import AdoptionError, NotAvailable, UsageError, nearest
from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Mode, Moment, ScriptFacts
from ...records.modes.mode_registry import COMPILED, DEFERRED_DEVICES
from ...records.modes.mode_spec import LADDER, ModeSpec
from ...script.parallel import within_wrapper
from ...tape.recording.step_recorder import RecordingRequest, StepRecorders
from ...torch_private.compiler.compiling import (
    compile_in_place,
    compiled_frames,
    has_inductor,
    own_compile,
    set_graph_caches,
    set_inductor_numerics,
    set_inductor_options,
    set_traced_rnn,
    undo_compile_in_place,
)
from ...torch_private.compiler.triton_numerics import contract_in_triton
from ...torch_private.patches import Undo
from ...torch_private.profiling.compile_work import inductor_mode_options, is_compiled_by_script, refusals
from ..device_presence import require_device
from ..eager.mode import EagerMode


class CompileMode(Mode):
    """The mode that calls `module.compile(backend=...)` for every root module, and is otherwise like eager mode."""

    capabilities = COMPILED
    backend: str

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec
        self.backend = spec.backend or "inductor"
        self.eager = EagerMode(spec)
        self._verified = False
        self._compiled_before = compiled_frames()
        self._compiled: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._left: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._undo: Undo = lambda: None
        self.device = self.eager.device = spec.device or "cpu"

    def require_here(self) -> None:
        require_backend(self.spec.name, self.backend)
        require_device(self.device)
        if self.backend == "inductor":
            require_inductor(self.device)

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        self.eager.set_up(swaps)
        require_backend(self.spec.name, self.backend)
        if self.backend == "inductor":
            require_inductor(self.device)
            configure_inductor(self.spec)
            self._undo = contract_on_device(self.spec)
        elif self.spec.inductor:
            raise UsageError(
                f"mode {self.spec.name!r}: inductor.{next(iter(self.spec.inductor))} has no effect with backend "
                f"{self.backend}; leave one of them out"
            )
        if self.spec.allow_rnn is not None:
            set_traced_rnn(self.spec.allow_rnn == "on")
        if self.spec.graph_cache is not None:
            set_graph_caches(self.spec.graph_cache == "on")
        swaps.install(self.device, compiled=True)

    def adopt(self, module: torch.nn.Module) -> None:
        self.eager.adopt(module)
        module = within_wrapper(module)
        if isinstance(module, torch.jit.ScriptModule):  # dynamo does not trace it
            return
        if module not in self._left and not any(map(is_compiled_by_script, module.modules())):
            compile_in_place(module, self.backend, **self._dynamic)
            self._compiled.add(module)

    def adopt_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a compiled version of a function that returns loss and gradients, as torch.func makes them."""
        compiled: Callable[..., Any] = own_compile()(function, backend=self.backend, **self._dynamic)
        return compiled

    def leave_alone(self, module: torch.nn.Module) -> None:
        """Do not compile this module: a compiled function of the script calls it."""
        self._left.add(module)

    def settings(self, mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None) -> Mapping[str, Any]:
        """Return the `mode` and `options` that the script's call of `torch.compile` keeps.

        With Inductor, the call keeps everything but the options that numdrift's mode sets. With another backend, it
        keeps nothing.
        """
        if self.backend != "inductor":
            return self._dynamic
        named = inductor_mode_options(mode, dynamic) if mode not in (None, "default") else {}
        chosen = {name.replace("-", "_"): value for name, value in {**named, **(options or {})}.items()}
        # The options that numdrift's mode sets. The script's values for them would override the user's.
        spec = self.spec
        of_keys = {
            "cpp.enable_floating_point_contract_flag": spec.contract,
            "emulate_precision_casts": spec.emulate_casts,
            "fallback_random": spec.fallback_random,
        }
        stated = set(spec.inductor) | {name for name, value in of_keys.items() if value is not None}
        kept = {name: value for name, value in chosen.items() if name not in stated}
        if kept == chosen:
            return self._dynamic | ({"mode": mode} if mode else {"options": options} if options else {})
        return self._dynamic | ({"options": kept} if kept else {})

    @property
    def _dynamic(self) -> dict[str, Any]:
        return {} if self.spec.dynamic is None else {"dynamic": self.spec.dynamic == "on"}

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        self.eager.close(moment, settled)
        if moment == "step" and not self._verified:
            self._verified = True
            if compiled_frames() <= self._compiled_before:
                reasons = refusals()
                # With `allow_rnn=off`, the user agrees to a run without compiled code; a doubt of the run says so.
                if self.spec.allow_rnn != "off" or not any(RECURRENT in reason for reason in reasons):
                    raise AdoptionError(why_uncompiled(reasons))

    def leave(self) -> None:
        """Undo the compilation of modules and the mode's settings."""
        for module in self._compiled:
            undo_compile_in_place(module)
        self._undo()
        self.eager.leave()

    def capture(self, request: CaptureRequest) -> Capture:
        capturing = importlib.import_module("numdrift.harness.backends.capturing.compiled_and_eager")
        capture: Capture = capturing.CompiledAndEager(request)
        return capture

    def step_recorders(self, request: RecordingRequest) -> StepRecorders | None:
        """Return recorders that split compiled graphs into calls; None on a device that defers the execution of ops."""
        if self.device.partition(":")[0] in DEFERRED_DEVICES:
            return None
        steps = importlib.import_module("numdrift.harness.backends.compiled.compiled_steps")
        recorders: StepRecorders = steps.CompiledSteps(self, request)
        return recorders

    def snapshots(self, camera: Any, circumstances: Any, bound: Callable[[], Mapping[str, torch.Tensor]]) -> Any:
        executions = importlib.import_module("numdrift.harness.backends.compiled.graph_executions")
        return executions.CompiledExecutions(camera, circumstances, executions.ScriptNames(bound))

    def adapter(self) -> Adapter:
        return load_adapter("compiled.adapter:CompileAdapter", self.spec)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self.eager.read(tensors)

    def in_place(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self.eager.in_place(tensors)


RECURRENT = "RNN, GRU, or LSTM"
"""The words of dynamo's reason for a module that it traces only with `allow_rnn`."""


def why_uncompiled(reasons: Sequence[str]) -> str:
    """Say that nothing was compiled in the first step, with dynamo's reasons and the keys of a mode that help."""
    explanation = "call the model itself (model(x)), not its parts"
    if reasons:
        explanation = f"dynamo left the model to eager mode ({'; '.join(reasons[:2])})"
    if any(RECURRENT in reason for reason in reasons):
        explanation += "; with allow_rnn=on in the mode it is compiled, with allow_rnn=off the run goes on without"
    return f"nothing was compiled in the first step, so this run would be plain eager: {explanation}"


def require_backend(mode: str, backend: str) -> None:
    """Raise UsageError if torch.compile knows no such backend. This loads dynamo, on which later code relies."""
    if backend not in torch.compiler.list_backends(exclude_tags=()):
        names = {*LADDER, *torch.compiler.list_backends()}
        raise UsageError(f"mode {mode!r}: there is no backend {backend!r}; {nearest(backend, names)}")


def require_inductor(device: str) -> None:
    """Raise NotAvailable for a device that Inductor generates no code for."""
    kind = device.partition(":")[0]
    if kind != "cpu" and not has_inductor(kind):
        why = f"Inductor generates no code for {kind}"
        raise NotAvailable(f"torch.compile on {kind}", why, "add backend=aot_eager to the mode")


def contract_on_device(spec: ModeSpec) -> Undo:
    """Apply a mode's setting for the contraction of a*b+c to code for an accelerator. Return a function that undoes it.

    `configure_inductor` applies the setting to C++ code.
    """
    if spec.contract is None or spec.accelerator is None:
        return lambda: None
    return contract_in_triton(spec.contract == "fast")


def configure_inductor(spec: ModeSpec) -> None:
    """Apply a mode's settings to Inductor. Settings that the mode leaves open are not changed."""
    set_inductor_numerics(
        contract=None if spec.contract is None else spec.contract == "fast",
        emulate_casts=None if spec.emulate_casts is None else spec.emulate_casts == "on",
        # Random numbers can be drawn on the CPU only if eager kernels draw them.
        fallback_random=True
        if spec.draws == "cpu"
        else None
        if spec.fallback_random is None
        else spec.fallback_random == "on",
    )
    set_inductor_options(spec.inductor)
