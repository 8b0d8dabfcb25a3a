"""Experiments: the runs that a verdict needs, planned and made.

    in   the plan of an investigation: modes, script, steps, and what the user allows
    out  runs and experiments in the investigation's folder

The laboratory makes a run only if the folder has none that serves. `rounds` asks for what a verdict needs, round by
round: each round looks at what the one before has found.
"""
