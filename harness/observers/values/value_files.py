"""Parameter values on disk, thinned by halves so that a long run stays within its budget.

The budget holds for everything that the values leave behind: these files, and the pickle that is made of them when the
run has ended (see `harness/runs/pickles.py`).

The i-th offered step goes to the file of level v, where 2**v is the largest power of two that divides i. When the
budget is reached, the lowest level's file is removed and its steps are no longer kept. So every second value is
dropped, the rest stays evenly spaced, and nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ...records import frames
from ...records.run.step_selection import KeepParams
from ...tape.files.earlier_values import link_if_equal
from ...tape.files.journal_writing import FrameFile
from .fetched_values import on_host
from .tensor_buffers import TensorBuffers

FIRST_STEP_LEVEL = 63
"""Level of step 0, which every power of two divides: it is never dropped."""


def level_of(index: int) -> int:
    """Return the exponent of the largest power of two that divides `index`."""
    return (index & -index).bit_length() - 1 if index else FIRST_STEP_LEVEL


class ValueFiles:
    """Writes the values of the kept steps. `notice` receives a message when thinning starts.

    `earlier` are the journals of runs that this one may repeat.
    """

    def __init__(
        self,
        folder: Path,
        keep: KeepParams,
        budget: int,
        notice: Callable[[str], None],
        earlier: Sequence[Path] = (),
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._budget = budget
        self._notice = notice
        self._earlier = earlier
        self._lowest = 0
        self._written: dict[int, int] = {}
        self._files: dict[int, FrameFile] = {}
        self._buffers = TensorBuffers()
        self._last_kept: int | None = None
        self._last_level = 0
        self._offered = 0

    def keep(self, table: int, step: int, tensors: Sequence[torch.Tensor]) -> None:
        """Append the values of one step, in the order of its table, if the step is one of those to keep.

        Only then are values of an accelerator copied to the CPU.
        """
        if not self._keep.every or step % self._keep.every:
            return
        level, self._offered = level_of(self._offered), self._offered + 1
        if level < self._lowest:
            return
        file = self._files.setdefault(level, FrameFile(self._folder / frames.values_file(level)))
        of_step = self._write(file, table, step, tensors) + self._buffers.pickled
        self._written[level] = self._written.get(level, 0) + of_step
        self._last_kept, self._last_level = step, level
        while sum(self._written.values()) > self._budget and len(self._written) > 1:
            lowest = min(self._written)
            self._files.pop(lowest).close()
            (self._folder / frames.values_file(lowest)).unlink()
            del self._written[lowest]
            if self._last_level == lowest:  # the values written last are gone, too: write them again at the end
                self._last_kept = None
            self._lowest = lowest + 1
            share = 1 << self._lowest
            self._notice(
                f"parameter values exceed {self._budget / 2**20:g} MiB: from now on they are kept at one step in "
                f"{share} (change this with --keep-params and --keep-budget)"
            )

    def write_last(self, table: int, step: int, tensors: Sequence[torch.Tensor]) -> None:
        """Write the last step's values, unless they are already on disk."""
        if step != self._last_kept:
            file = FrameFile(self._folder / frames.LAST_VALUES)
            self._write(file, table, step, tensors)
            file.close()
            link_if_equal(file.path, [journal / frames.LAST_VALUES for journal in self._earlier])

    def _write(self, file: FrameFile, table: int, step: int, tensors: Sequence[torch.Tensor]) -> int:
        values = on_host(tensors)
        return file.frame(table, step, self._buffers.of(values), self._buffers.size)
