"""What the parent tells the recorder: one JSON file, read before torch is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .mode_spec import ModeSpec
from .step_selection import KeepParams, StepSelection

LEVELS = ("losses", "params", "ops", "tensors")
"""What is recorded of each chosen step; each level includes the ones before it."""

DEFAULT_VALUE_BUDGET = 256 * 2**20
"""Bytes of parameter values that a run keeps before it thins them out."""


NOISE_REPLAYS = 8
"""Members of the noise ensemble; from 8 on its false positives were 0 in the study behind it."""

FIRST_STEPS = StepSelection(((0, 1),))
"""Of these steps the graphs are captured: the second one differs where an optimizer makes its state in the first."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run: `journal` is the folder to write, `value_budget` is in bytes.

    `kernels` are the user's own, as (op, path); of the ops in `trace_kernels` the first calls are written down.
    `graphs` asks for the graphs of `graph_steps`.

    `states` are the steps whose state is kept as it is at their beginning, `outcomes` those of which losses,
    gradients and the state after the step are kept, `tapes` those that are recorded as a tape and replayed
    `noise_replays` times with random rounding; None means none. `edge_replays` more have the rounding 16 times as
    strong, to see whether a discrete choice hangs on it. `resync` is the folder of another run's states:
    each step that has one there starts from it. `perturb` moves the initial parameters (with `resync` those of
    each forced step) by one ULP, drawn with this seed. `seed_shift` is added to every seed that the script sets.
    `until` is the last step that is needed: the script is left, as by `sys.exit()`, when the step after it has ended.
    `module` is the name behind `-m` when the script was asked for as a module, `script` then its file; `invoked` is the script's path as the user gave it. `strict` makes
    an error of what was not understood of the script.
    `rank` is this process's among `world_size` processes of the run; `sketches` asks for linear sketches of every tensor,
    which runs with sharded tensors have anyway.
    `instruments` are the bring-up tools that look on, by name, each with its options (JSON); see hooks/instruments.py.
    `serve` is the path of a unix socket at which the process answers after the script has ended well; "" means that it
    exits then, as ever.
    """

    script: str
    mode: ModeSpec
    journal: str
    arguments: tuple[str, ...] = ()
    record: str = "params"
    steps: StepSelection = field(default_factory=StepSelection)
    keep_params: KeepParams = field(default_factory=KeepParams)
    value_budget: int = DEFAULT_VALUE_BUDGET
    kernels: tuple[tuple[str, str], ...] = ()
    trace_kernels: tuple[str, ...] = ()
    graphs: bool = False
    graph_steps: StepSelection = FIRST_STEPS
    states: StepSelection | None = None
    outcomes: StepSelection | None = None
    resync: str = ""
    tapes: StepSelection | None = None
    noise_replays: int = NOISE_REPLAYS
    edge_replays: int = 0
    perturb: int | None = None
    seed_shift: int = 0
    until: int | None = None
    serve: str = ""
    module: str = ""
    invoked: str = ""
    strict: bool = False
    rank: int = 0
    world_size: int = 1
    sketches: bool = False
    instruments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def records(self, level: str) -> bool:
        return LEVELS.index(self.record) >= LEVELS.index(level)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        return data | {
            "mode": self.mode.to_json(),
            "steps": str(self.steps),
            "keep_params": str(self.keep_params),
            "graph_steps": str(self.graph_steps),
            **{name: None if steps is None else str(steps) for name, steps in self._chosen_steps().items()},
            "arguments": list(self.arguments),
        }

    def _chosen_steps(self) -> dict[str, StepSelection | None]:
        return {"states": self.states, "outcomes": self.outcomes, "tapes": self.tapes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunConfig:
        parsed = {
            "mode": ModeSpec.from_json(data["mode"]),
            "steps": StepSelection.parse(data["steps"]),
            "keep_params": KeepParams.parse(data["keep_params"]),
            "arguments": tuple(data["arguments"]),
            "kernels": tuple((op, path) for op, path in data.get("kernels", ())),
            "trace_kernels": tuple(data.get("trace_kernels", ())),
            "graph_steps": StepSelection.parse(data.get("graph_steps", str(FIRST_STEPS))),
            **{
                name: None if data.get(name) is None else StepSelection.parse(data[name])
                for name in ("states", "outcomes", "tapes")
            },
        }
        return cls(**{**data, **parsed})

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
