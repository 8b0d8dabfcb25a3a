"""What rows need that is not everywhere: each need by its word, with the reason where it is not met."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping

from .investigations import MASKED
from .laboratory import Laboratory
from .machine import SMI
from .rows import Bare, Row

PROBE_LIMIT = 60.0


def lacking(lab: Laboratory, row: Row) -> str:
    """Say why a row cannot run here; "" where it can."""
    return told_at_once(lab, row) or next((why for need in row.needs if (why := NEEDS[need](lab))), "")


def told_at_once(lab: Laboratory, row: Row) -> str:
    """Say the same of what needs no training to be known."""
    return next((why for need in row.needs if need not in TRIED and (why := NEEDS[need](lab))), "")


def _cuda(lab: Laboratory) -> str:
    return "" if lab.device.is_cuda else f"of CUDA alone, not of {lab.device.name}"


def _sklearn(lab: Laboratory) -> str:
    return "" if importlib.util.find_spec("sklearn") else "scikit-learn is not installed here"


def _nvidia_smi(lab: Laboratory) -> str:
    return "" if shutil.which(SMI) else f"{SMI} is not here"


def _nan_of_cudnn(lab: Laboratory) -> str:
    """Train without numdrift: the second loss is NaN where the first step's gradients are."""
    words, variables = Bare(MASKED, ("--steps", "2"), lab.device.name).command()
    done = lab.commands.python(*words, limit=PROBE_LIMIT, variables={**lab.device.bare_variables, **variables})
    if done.code != 0:
        return f"the bare training fails, {done.why()}"
    return "" if "loss nan" in done.out else "this torch and GPU have no such NaN: the bare training stays finite"


NEEDS: Mapping[str, Callable[[Laboratory], str]] = {
    "cuda": _cuda,
    "sklearn": _sklearn,
    "nvidia-smi": _nvidia_smi,
    "nan of cuDNN": _nan_of_cudnn,
}

TRIED = ("nan of cuDNN",)
"""Needs that a training tells."""
