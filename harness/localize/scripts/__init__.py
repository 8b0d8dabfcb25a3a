"""Scripts: each culprit as a file of plain torch.

    in   the block of a culprit: both sides' calls, their inputs and results
    out  a script that runs without numdrift, and the errors of both sides over the real inputs

Each script is executed once by a bare interpreter before it is offered, to check that it shows the difference.
"""
