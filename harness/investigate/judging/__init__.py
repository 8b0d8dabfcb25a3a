"""Judging: from evidence to verdicts and findings.

    in   recorded runs and their evidence
    out  for each pair a verdict, sentences for the user, and culprits

Nothing is run here: `judge` says what the evidence shows, and `investigate_command` which command would make what
is missing.
"""
