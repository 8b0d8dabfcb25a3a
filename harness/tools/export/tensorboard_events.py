"""Runs as event files of TensorBoard, a folder a run."""

from __future__ import annotations

import warnings

from .exported_run import Export
from .optional_library import optional_library


def write_events(export: Export) -> None:
    """Write with TensorBoard's own writer, `loss`, `logged/<name>` and `seconds` as scalars at the time of their step.

    A scalar of TensorBoard is a float32: a loss keeps 24 of its 53 bits, one beyond 3.4e38 becomes infinite. NaN and
    infinities stay what they are. TensorBoard's data server shows no scalar of 64 bits, though its files could hold
    them. Raises OSError and ExtraNotFound.
    """
    library = optional_library("tensorboard.summary", "tensorboard")
    for run in export.runs:
        writer = library.Writer(str(export.path / run.name))
        with warnings.catch_warnings():  # NumPy warns of a number that no float32 holds; the docstring says it
            warnings.simplefilter("ignore", RuntimeWarning)
            for step in run.steps:
                for name, value in run.scalars(step).items():
                    writer.add_scalar(name, value, step.step, wall_time=run.began + step.seconds)
        writer.close()
