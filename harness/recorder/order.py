"""The observers of a training run, in the order in which they are notified. Only this file defines the order.

A later observer acts on top of the earlier ones, and comes first when something ends (`OUTWARDS`):

- the step itself is written before its files: in lazy mode, the first observer that reads values decides which values
  one graph computes;
- observation of the ops begins after a state is restored, and ends before the tape of the step is replayed;
- generators are read after the state is restored, and a model's initial values before its first step begins;
- graphs are captured before the mode executes them, and the tools read them after that.

A new observer needs a class in `observers/` and a line in this file. tests/harness/recorder/test_observing_order.py
lists the order for a whole run.
"""

from __future__ import annotations

from collections.abc import Callable

from ..hooks.audience import Part, Seat
from ..records.run.run_config import RunConfig

RECORDING = Part(", so recording stops here", needed=True, stays=True)
EXPERIMENTS = Part(", so no states, outcomes or tapes are kept from here on", needed=True)
TOOL = Part(" and stops here")


def _always(config: RunConfig) -> bool:
    return True


def _tool(name: str) -> Callable[[RunConfig], bool]:
    return lambda config: name in config.instruments


def _experiments(config: RunConfig) -> bool:
    selections = (config.states, config.outcomes, config.tapes)
    return bool(config.resync or config.checkpoints) or any(selection is not None for selection in selections)


ORDER = (
    Seat("the steps", "values.step_writer:StepWriter", RECORDING, _always),
    Seat("the preparation", "state.preparation_recording:PreparationRecording", TOOL, lambda config: config.prepares),
    Seat("the experiments", "experiments.step_experiments:Experiments", EXPERIMENTS, _experiments),
    Seat("the capture of graphs", "graph_recording:GraphRecording", TOOL, lambda config: config.graphs),
    Seat("partition", "partition.partition_instrument:PartitionInstrument", TOOL, _tool("partition")),
    Seat("metrics", "metrics_instrument:MetricsInstrument", TOOL, _tool("metrics")),
    Seat("support", "support_instrument:SupportInstrument", TOOL, _tool("support")),
    Seat("profile", "profile.profile_instrument:ProfileInstrument", TOOL, _tool("profile")),
    Seat("snapshots", "snapshot_instrument:SnapshotInstrument", TOOL, _tool("snapshots")),
    Seat("the ops", "calls.operations:RecordedOperations", RECORDING, lambda config: config.records("ops")),
    Seat("the calls", "calls.call_recording:CallRecording", TOOL, lambda config: config.calls is not None),
    Seat("the setup", "state.setup_facts:SetupFacts", RECORDING, _always),
    Seat("what is compiled", "calls.compilation_events:CompilationEvents", TOOL, _always),
)
