"""Every private torch name that numdrift touches, each behind a guard.

A hook that this torch version lacks raises NotAvailable with the version in its reason; nothing else in
numdrift reads a name with a leading underscore from torch. Verified on torch 2.13.0.
"""

from __future__ import annotations

from .compiling import (
    DecompositionTable,
    compile_alone,
    compile_in_place,
    compiled_frames,
    inductor_decompositions,
    is_being_traced,
    is_compiled_in_place,
    is_traced,
    replace_inductor_decompositions,
    set_inductor_numerics,
    traced_place,
)
from .dispatching import (
    DispatchMode,
    OpaqueOps,
    Overrides,
    current_autograd_node,
    dispatch_key,
    no_dispatch,
    original_kernel,
    without_dispatch_modes,
    without_function_modes,
)
from .lazy import (
    lazy_mark_step,
    replace_lazy_mark_step,
    start_lazy_backend,
    sync_lazy,
)
from .operators import (
    Argument,
    arguments_of,
    aten_operations,
    decomposition_of,
    find_overload,
    find_packet,
    is_composite,
    is_random,
    near_op,
    overloads_of,
    returns_something,
    returns_view,
    schema_of,
    schema_text,
    written_arguments,
    written_names,
)

__all__ = [
    "Argument",
    "DecompositionTable",
    "DispatchMode",
    "OpaqueOps",
    "Overrides",
    "arguments_of",
    "aten_operations",
    "compile_alone",
    "compile_in_place",
    "compiled_frames",
    "current_autograd_node",
    "decomposition_of",
    "dispatch_key",
    "find_overload",
    "find_packet",
    "inductor_decompositions",
    "is_being_traced",
    "is_compiled_in_place",
    "is_composite",
    "is_random",
    "is_traced",
    "lazy_mark_step",
    "near_op",
    "no_dispatch",
    "original_kernel",
    "overloads_of",
    "replace_inductor_decompositions",
    "replace_lazy_mark_step",
    "returns_something",
    "returns_view",
    "schema_of",
    "schema_text",
    "set_inductor_numerics",
    "start_lazy_backend",
    "sync_lazy",
    "traced_place",
    "without_dispatch_modes",
    "without_function_modes",
    "written_arguments",
    "written_names",
]
