"""Inductor's preparations in a process: Inductor examines the CPU, the C++ compiler and its own sources.

The preparations take 1.9 s of processor time on an AVX-512 machine if Inductor makes them, most of it in processes that
try to load a vector instruction set. A process that forks compiled training runs makes the preparations once for all of
them, and tries the sets in forks, which leaves 0.4 s.

The process that calls `start_inductor` has not imported any part of numdrift, and loads this file by its path. The file
therefore imports only torch and the standard library.

Verified on torch 2.13.0. If a version uses different names, each compiled run makes the preparations itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
from collections.abc import Iterator
from typing import Any


def start_inductor() -> None:
    """Fill Inductor's caches in this process, except those that depend on a run's settings. Raises nothing."""
    with contextlib.suppress(Exception):
        from torch._inductor import codecache, cpu_vec_isa

        codecache.torch_key()
        codecache.CacheBase.get_system()
        with loading_in_forks(cpu_vec_isa.VecISA):
            instructions = cpu_vec_isa.pick_vec_isa()
        # The list of usable instruction sets depends on a run's `cpp.vec_isa_ok`. The trials of the sets do not.
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        for vectors in (instructions, cpu_vec_isa.invalid_vec_isa):
            precompile_header(vectors)


def load_inductor() -> None:
    """Import Inductor, and make its preparations, for the forks of this process."""
    importlib.import_module("torch._inductor.compile_fx")
    start_inductor()


@contextlib.contextmanager
def loading_in_forks(vectors: Any) -> Iterator[None]:
    """Let the trials of the instruction sets load their code in a fork of this process, which has loaded torch.

    Inductor starts Python for each trial and loads torch's libraries into it, which takes 0.25 s of processor time.
    """
    original = vectors.__dict__.get("_probe_load")
    if original is None or not hasattr(os, "fork"):
        yield
        return
    vectors._probe_load = loads
    try:
        yield
    finally:
        vectors._probe_load = original


def loads(_: Any, path: str) -> bool:
    """Check in a fork whether a library can be loaded: the processor may not know its instructions."""
    process = os.fork()
    if process == 0:
        code = 1
        faulthandler.disable()  # the answer is the signal that ends the fork, which is no crash to report
        try:
            ctypes.CDLL(path)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(process, 0)[1] == 0


def precompile_header(vectors: Any) -> None:
    """Compile the header of generated code for an instruction set, if Inductor's cache does not have it."""
    from torch._inductor import codecache, cpp_builder

    python = codecache.CppPythonBindingsCodeCache
    header = python._get_uncompiled_header("cpu")
    flags: dict[str, Any] = {
        **python.cpp_compile_command_flags,
        "device_type": "cpu",
        "extra_flags": (),
        "use_relative_path": False,
        "vec_isa": vectors,
    }
    options = cpp_builder.CppTorchDeviceOptions(compile_only=False, min_optimize=False, **flags)
    command = cpp_builder.CppBuilder(name="o", sources="i", BuildOption=options).get_command_line()
    codecache._precompile_header(header, command, min_optimize=False, **flags)
