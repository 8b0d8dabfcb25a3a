"""Measure one kernel on every input of a domain, on all cores, and resume an interrupted sweep.

Threads take one block after another. One thread computes the bins of a block in the order of the inputs, and no bin
belongs to two blocks. So neither the number of threads, nor the order of the blocks, nor an interruption changes a bit
of the result. torch's ops and the reduction in C release the interpreter's lock, so threads are as fast as processes,
and kernels need not be sent to other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import sweep_state
from .sweep_bins import Reduction, empty_bins, merged_worst
from .sweep_candidates import Candidate
from .sweep_domain import Domain
from .sweep_state import Identity, SweepProgress

SAVE_SECONDS = 3.0
_TELL_SECONDS = 0.1

_PLAIN_EVERY = 16
"""The number of blocks from one timing of torch's own op to the next; the op is timed on the inputs of one block."""

Report = Callable[[int], None]
"""Receives the number of inputs measured so far."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One kernel over one domain. `order` is the order of the blocks, by default ascending."""

    candidate: Candidate
    domain: Domain
    reduction: Reduction
    jobs: int = 1
    order: Sequence[int] = ()

    def identity(self) -> Identity:
        return Identity.of(self.candidate, self.domain)

    def run(self, progress: SweepProgress, folder: Path | None = None, report: Report = lambda measured: None) -> None:
        """Measure the blocks that `progress` lacks; save the progress in `folder` every few seconds and at the end.

        Raises the kernel's errors and KeyboardInterrupt, keeping the measurements so far.
        """
        blocks = [number for number in self.order or self.domain.blocks() if not progress.done[number]]
        work = _Work(self, progress, iter(blocks), folder)
        # the sweep runs a thread for each core; torch's own threads would compete with these
        intra_op = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(self.jobs) as pool:
                work.watch([pool.submit(work.take_blocks) for _ in range(self.jobs)], report)
        finally:
            torch.set_num_threads(intra_op)
            work.keep()


@dataclass(slots=True)
class _Work:
    """The state that the threads of a sweep share."""

    sweep: Sweep
    progress: SweepProgress
    blocks: Iterator[int]
    folder: Path | None
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    clock: float = field(default_factory=time.perf_counter)
    saved: float = field(default_factory=time.perf_counter)

    def take_blocks(self) -> None:
        """Measure blocks in one thread until none is left or the sweep stops."""
        candidate, encoding = self.sweep.candidate, self.sweep.domain.encoding
        while True:
            with self.lock:
                block = next(self.blocks, None)
            if block is None:
                return
            first_bin = block * encoding.block >> encoding.bin_shift
            bins = empty_bins(encoding.block >> encoding.bin_shift)
            worst, plain = [], 0.0
            pieces = list(self.sweep.domain.pieces(block))
            for start, runs in pieces:
                if self.stop.is_set():  # an incomplete block is not kept
                    return
                inputs = encoding.tensor(start, encoding.piece)
                got, want = candidate.results(inputs), candidate.exact_results(inputs)
                for run in runs:
                    part, place = slice(run.first - start, run.last + 1 - start), run.bin - first_bin
                    record = bins[place : place + 1]
                    worst.append(self.sweep.reduction(encoding, got[part], want[part], run.first, record))
                if block % _PLAIN_EVERY == 0:
                    args, kwargs = candidate.subject.arguments(inputs)
                    started = time.perf_counter()
                    candidate.subject.overload(*args, **kwargs)
                    plain += time.perf_counter() - started
            with self.lock:
                self.progress.add(block, first_bin, bins, merged_worst(*worst))
                if plain:
                    self.progress.plain_seconds += plain
                    self.progress.plain_inputs += len(pieces) * encoding.piece

    def watch(self, threads: Sequence[Future[None]], report: Report) -> None:
        """Save and report until the threads are done. An error in one of them stops them all, and is raised."""
        try:
            pending = set(threads)
            while pending:
                done, pending = wait(pending, _TELL_SECONDS, FIRST_EXCEPTION)
                for thread in done:
                    thread.result()
                if time.perf_counter() - self.saved > SAVE_SECONDS:
                    self.keep()
                report(self.progress.inputs())
        finally:
            self.stop.set()

    def keep(self) -> None:
        """Update the measured times, and save the progress."""
        with self.lock:
            now = time.perf_counter()
            self.progress.wall += now - self.clock
            self.progress.thread_seconds += (now - self.clock) * self.sweep.jobs
            self.clock = self.saved = now
            if self.folder is not None:
                sweep_state.save(self.folder, self.sweep.identity(), self.progress)
