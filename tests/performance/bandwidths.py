"""Prints the bandwidths of the digest, of the comparison and of torch.sum in one thread, as JSON; one process per instruction set.

python -m tests.performance.bandwidths AVX2|AVX-512 ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from numdrift.harness.drift import distance
from numdrift.harness.drift.parameter_distance import parameter_drift
from numdrift.harness.observers.values import digest

ELEMENTS = 1 << 24
"""Of float32: 64 MiB, which no cache holds."""

TUNINGS = {"AVX2": ("-march=haswell",), "AVX-512": ("-march=skylake-avx512", "-mprefer-vector-width=512")}
"""What numdrift's native code is compiled with; numdrift itself compiles it for the machine's own instruction set."""

CAPABILITIES = {"AVX2": "avx2", "AVX-512": "avx512"}
"""ATEN_CPU_CAPABILITY, which chooses torch's kernels."""


def main() -> None:
    instructions, rounds = sys.argv[1], int(sys.argv[2])
    digest.SOURCE = replace(digest.SOURCE, tunings=(TUNINGS[instructions],))
    distance.SOURCE = replace(distance.SOURCE, tunings=(TUNINGS[instructions],))
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    a = generator.standard_normal(ELEMENTS, np.float32)
    b = a * (1 + generator.standard_normal(ELEMENTS, np.float32) / 2**20)
    tensor, digester = torch.from_numpy(a), digest.Digester()
    if digester.implementation != "native" or distance.load() is None:
        raise SystemExit(f"the native code cannot be compiled: {digester.reason}")
    work: dict[str, tuple[int, Callable[[], object]]] = {
        "torch.sum": (4, lambda: torch.sum(tensor)),
        "digest": (4, lambda: digester.digest([tensor])),
        "comparison": (8, lambda: parameter_drift({"w": a}, {"w": b})),  # both arrays count
    }
    taken: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, (size, function) in work.items():
            began = time.perf_counter()
            function()
            if number:  # the first round warms up
                taken[name].append(size * ELEMENTS / (time.perf_counter() - began) / 1e9)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
