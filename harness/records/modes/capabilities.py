"""The capabilities of a mode: facts that vary between modes, for code that must not depend on a mode's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The facts about one base in the mode grammar. The class that implements the base states the same facts.

    The defaults are those of eager execution.

    has_values: an op's result has values as soon as the op is called. In a mode whose results have none, a Python
        dispatch mode breaks the lazy core's functionalization ("aten::as_strided ... has no implementation for the
        backend", torch 2.13).
    tapes_itself: a training run in the mode can record tapes. Otherwise a separate process executes the step's ops on
        the CPU and records the tape.
    has_storage: the mode's tensors have memory that can be read, saved and pinned.
    collectives: torch.distributed has collectives for the mode's tensors.
    default_device: the mode's device can be torch's default device.
    compiles: torch.compile compiles the computations of the script.
    aten_kernels: torch's own kernel executes an op whose kernel is not swapped.
    own_kernels: the name of the kernels that the mode generates for each op; "" if it generates none.
    draws_as: what messages call the mode ("a compiled mode"), if its random numbers differ from eager's unless
        `fallback_random=on` or `draws=cpu` is set; "" for any other mode.
    executes_hlo: the mode executes HLO modules.
    package: the package that the mode needs in addition to torch; "" for none.
    keys: the keys of the mode grammar that this base has and at least one other base lacks.
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
