"""`numdrift kernels`: the kernels of an op, and the lab that measures them."""

from __future__ import annotations

from ..program import LazyGroup

COMMANDS = {
    "list": "List the ops that have kernels, or the kernels of one op.",
    "check": "Measure every kernel of an op against an exact reference.",
    "sweep": "Measure an op's kernels on all inputs of a dtype, and draw the error.",
    "build": "Compile or load a kernel of your own, and describe it.",
}

EXAMPLES = """\b
Examples:
  numdrift kernels list tanh_backward
  numdrift kernels check tanh_backward
  numdrift kernels sweep tanh --dtype bfloat16
  numdrift kernels build mine.c
"""


command = LazyGroup(
    "kernels",
    package=__name__,
    summaries=COMMANDS,
    epilog=EXAMPLES,
    help="List an op's kernels, measure them, sweep them over all inputs, or compile your own.",
)
