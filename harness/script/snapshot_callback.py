"""`numdrift.on_snapshot`: the script's own say in which executions are kept. Importing it loads no torch."""

from __future__ import annotations

from collections.abc import Callable

OnSnapshot = Callable[..., str]


class Registered:
    """The function that the script has given, None where it has given none."""

    def __init__(self) -> None:
        self.function: OnSnapshot | None = None


registered = Registered()


def on_snapshot(function: OnSnapshot | None) -> OnSnapshot | None:
    """Have `function` say of each execution what of it is kept; gives the function that was asked before,
    None at first.

        def choose(name, device_index, execution_count, step):
            return "inputs outputs" if step == 5 else ""

        numdrift.on_snapshot(choose)

    It answers "inputs", "outputs", "inputs outputs" or "" (nothing); `None` in its place takes it away.
    `name` is that of the graph, `device_index` the number of the device, `execution_count` how often the
    graph ran there before; a function of three parameters is not told the step. It is asked under `numdrift
    snapshot take`; elsewhere this does nothing, so it can stay in the script.
    """
    former, registered.function = registered.function, function
    return former
