"""The names by which a trace's ranges are known again."""

from __future__ import annotations

PHASE = "phase: "
MODULE = "module: "
STEP = "ProfilerStep#"
"""torch's own tools know a step by this."""

CUT = "mark_step"
OWN = "numdrift"
"""The phase of what the recording itself does between the script's steps."""

FORWARD = "forward"
UNTRAINED = "no gradients"
"""The phases that begin with the first call of a model with gradients, and with one before it that has none,
an evaluation."""
