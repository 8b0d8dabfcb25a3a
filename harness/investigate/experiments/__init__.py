"""Experiments: the runs that a verdict needs, planned and made.

    in   the plan of an investigation: modes, script, steps, and what the user allows
    out  runs and experiments in the investigation's folder

The laboratory makes a run only if the folder has no usable one. `rounds` plans the experiments that a verdict needs,
round by round: each round depends on the results of the one before.
"""
