"""Joint causes: origins that make several blocks differ at once.

    in   causes of single sites
    out  fewer causes: a setting of torch, a batch, one wrong number, or causes that undo each other, as one each

Each file joins the causes that have one kind of origin: a setting that changes forty calls is one culprit, not forty.
"""
