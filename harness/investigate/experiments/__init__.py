"""Experiments: the planning and the execution of the runs that a verdict needs.

    in   the plan of an investigation: modes, script, steps, and the user's limits
    out  runs and experiments in the investigation's folder

The laboratory executes an experiment only if the folder has no usable run of it. `rounds` plans the experiments that a
verdict needs, round by round: each round depends on the results of the one before.
"""
