"""Execution: hybrids of two tapes, which take each block from one side or the other.

    in   blocks, and for each the side that executes it
    out  the values of the step: loss, gradients, parameters

A block is executed with the kernels of its own side. `verification` first executes each tape as it was recorded and
compares the bits of every result with the recorded ones. A call whose bits differ is executed by the worker
instead: the process of the mode, which stays alive for this purpose.

`tape_pair` holds both tapes, `step_memory` their values, and `prepared_call` a call with its arguments. `hybrid` has a
worked example of three hybrids of one step.
"""
