"""Judging: from evidence to verdicts and findings.

    in   recorded runs and their evidence
    out  for each pair a verdict, sentences for the user, and culprits

Nothing is run here: `judge` returns the findings, and `investigate_command` the command that runs missing
experiments.
"""
