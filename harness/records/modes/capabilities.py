"""The capabilities of a mode: the facts by which modes differ, for code that must not depend on a mode's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The facts of a base of the mode grammar, which the mode's class states too.

    The defaults are those of eager execution.

    has_values: an op's result has values as soon as the op is called. Without them, a Python dispatch mode also breaks
        the lazy core's functionalization ("aten::as_strided ... has no implementation for the backend", torch 2.13).
    tapes_itself: a training of the mode can record tapes. Otherwise another process executes the step's ops on the CPU.
    has_storage: its tensors have memory that can be read, saved and pinned.
    collectives: torch.distributed has collectives for its tensors.
    default_device: its device can be torch's default device.
    compiles: torch.compile compiles what the script computes.
    aten_kernels: a call that no swap reaches executes torch's own kernel.
    own_kernels: the name of the kernels that the mode generates for each op; "" if it generates none.
    draws_as: a phrase for a mode that draws different random numbers, unless `fallback_random=on`; "" for other modes.
    executes_hlo: it executes HLO modules.
    package: the package that the mode needs beside torch; "" for none.
    keys: the keys of the mode grammar that this base has and some others lack.
    """

    has_values: bool = True
    tapes_itself: bool = True
    has_storage: bool = True
    collectives: bool = True
    default_device: bool = True
    compiles: bool = False
    aten_kernels: bool = False
    own_kernels: str = ""
    draws_as: str = ""
    executes_hlo: bool = False
    package: str = ""
    keys: frozenset[str] = frozenset()
