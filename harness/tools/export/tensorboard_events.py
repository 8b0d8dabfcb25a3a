"""Runs as event files of TensorBoard, one folder per run."""

from __future__ import annotations

import warnings

from .exported_run import Export
from .optional_library import optional_library


def write_events(export: Export) -> None:
    """Write `loss`, `logged/<name>` and `seconds` as scalars at the time of their step, with TensorBoard's own writer.

    A TensorBoard scalar is a float32: a loss keeps 24 of its 53 bits, and a loss beyond 3.4e38 becomes infinite. NaN
    and infinities are kept. TensorBoard's files could store 64-bit scalars, but its data server does not show them.
    Raises OSError and ExtraNotFound.
    """
    library = optional_library("tensorboard.summary", "tensorboard")
    for run in export.runs:
        writer = library.Writer(str(export.path / run.name))
        with warnings.catch_warnings():  # NumPy warns about numbers beyond float32's range; see the docstring
            warnings.simplefilter("ignore", RuntimeWarning)
            for step in run.steps:
                for name, value in run.scalars(step).items():
                    writer.add_scalar(name, value, step.step, wall_time=run.began + step.seconds)
        writer.close()
