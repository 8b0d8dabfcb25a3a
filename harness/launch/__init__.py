"""Runs are planned, started, supervised and ended here: one process a mode, or one a rank."""
