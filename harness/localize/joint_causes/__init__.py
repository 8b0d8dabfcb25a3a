"""Joint causes: origins that make several blocks differ at once.

    in   causes of single sites
    out  fewer causes: a setting of torch, a batch, one wrong number, causes that undo each other

Each file joins causes that have one origin: a setting that changes forty calls is one culprit, not forty.
"""
