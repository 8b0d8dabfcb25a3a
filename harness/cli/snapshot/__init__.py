"""`numdrift snapshot`: single executions with their inputs, their outputs and their graph."""

from __future__ import annotations

from ..program import LazyGroup

COMMANDS = {
    "take": "Run a training script in each mode, and keep chosen executions, each in its own file.",
    "list": "List the snapshots of a run.",
    "show": "Show the contents of a snapshot: its ops, its inputs and its outputs.",
    "replay": "Execute a snapshot in any mode, and compare the results with the recorded ones.",
}

EXAMPLES = """\b
Examples:
  numdrift snapshot take train.py --modes compile,lazy --steps 3 -- --epochs 2
  numdrift snapshot take train.py --modes compile --on nonfinite
  numdrift snapshot list runs/train
  numdrift snapshot show runs/train/compile/snapshots/0-forward-step000003-execution000003.safetensors
  numdrift snapshot replay runs/train/compile/snapshots/0-forward-step000003-execution000003.safetensors --mode cpu
"""


command = LazyGroup(
    "snapshot",
    package=__name__,
    summaries=COMMANDS,
    epilog=EXAMPLES,
    help="Keep individual executions within a training script, with their inputs, outputs and graph, and replay them "
    "in any mode.",
)
