"""Joint causes: origins that make several blocks differ at once.

    in   causes of single sites
    out  fewer causes: each is a setting of torch, a batch, one wrong number, or a group of causes that undo each other

Each file joins the causes that have one kind of origin: a setting that changes forty calls is one culprit, not forty.
"""
