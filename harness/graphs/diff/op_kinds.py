"""The kind of an op (one name for the op in all modes) and its role (its effect on numbers).

Modes spell the same op differently: `t` in eager mode, `t_copy` in lazy, `permute` in compile; `add_` and
`_foreach_add_` in eager mode, `add` in a compiled graph. The kind of an op is the one name for all its spellings.
"""

from __future__ import annotations

from functools import cache

# The namespaces of torch's own ops; an op of another namespace is a custom op.
NEUTRAL_DOMAINS = frozenset({"", "aten", "prims", "ts", "lazy", "lazy_tensors", "xla", "torch", "python"})

SPELLINGS = {
    "permute": "t transpose transpose_int swapaxes movedim numpy_T mT permute",
    "view": "view reshape _unsafe_view _reshape_alias flatten unflatten view_of view_as collapse_view split_dim",
    "expand": "expand expand_as broadcast_to broadcast_in_dim",
    "squeeze": "squeeze unsqueeze",
    "slice": "slice narrow select split split_with_sizes chunk unbind diagonal slice_in_dim generic_slice",
    "detach": "detach alias lift_fresh lift view_as_real resolve_conj resolve_neg conj_physical",
    "clone": "clone contiguous",
    "full": (
        "full full_like zeros zeros_like new_zeros new_full new_ones ones ones_like scalar_tensor fill zero "
        "zeros_functional_tensor iota_scalar"
    ),
    "empty": "empty empty_like empty_strided new_empty new_empty_strided empty_permuted",
    "arange": "arange iota",
    "_to_copy": "_to_copy to convert_element_type cast type_as",
    "item": "item _local_scalar_dense",
    "sub": "sub subtract rsub",
    "mul": "mul multiply",
    "div": "div divide true_divide",
    "softmax": "softmax _softmax _safe_softmax",
    "softmax_backward": "softmax_backward_data _softmax_backward_data",
    "log_softmax": "log_softmax _log_softmax",
    "log_softmax_backward": "log_softmax_backward_data _log_softmax_backward_data",
    "nll_loss": "nll_loss nll_loss_forward nll_loss_nd",
    "layer_norm": "layer_norm native_layer_norm",
    "layer_norm_backward": "layer_norm_backward native_layer_norm_backward",
    "group_norm": "group_norm native_group_norm",
    "group_norm_backward": "group_norm_backward native_group_norm_backward",
    "batch_norm": (
        "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
        "_native_batch_norm_legit_no_training cudnn_batch_norm batch_norm_with_update "
        "_batch_norm_with_update _batch_norm_with_update_functional miopen_batch_norm"
    ),
    "batch_norm_backward": "native_batch_norm_backward cudnn_batch_norm_backward batch_norm_backward",
    "convolution": "convolution _convolution conv1d conv2d conv3d convolution_overrideable",
    "convolution_backward": "convolution_backward convolution_backward_overrideable",
    "max_pool2d": "max_pool2d max_pool2d_with_indices _low_memory_max_pool_with_offsets",
    "max_pool2d_backward": "max_pool2d_backward max_pool2d_with_indices_backward",
    "adaptive_avg_pool2d": "adaptive_avg_pool2d _adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward": "adaptive_avg_pool2d_backward _adaptive_avg_pool2d_backward",
    "dropout": "dropout native_dropout",
    "dropout_backward": "dropout_backward native_dropout_backward",
    "linalg_vector_norm": "linalg_vector_norm norm",
    "index_put": "index_put _index_put_impl _unsafe_index_put",
    "index": "index _unsafe_index",
    "tensor_list": "tensor_list list ListConstruct",
}
"""The spellings of each kind. An op that is not listed here is its own kind."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _words("permute view expand squeeze slice as_strided unfold")
BOOKKEEPING = _words("detach clone copy empty getitem item tensor_list device_data sym_size sym_numel set_data")
FILLS = _words("full arange constant eye tril_indices")
ARITHMETIC = _words(
    """add sub mul div pow square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal tanh sigmoid erf erfc sin
    cos tan sinh cosh atan addcmul addcdiv lerp fma hypot remainder fmod floor_divide"""
)
"""Elementwise ops that round their result."""
ELEMENTWISE = ARITHMETIC | _words(
    """neg abs sign sgn where maximum minimum clamp clamp_min clamp_max relu threshold eq ne lt le gt ge logical_and
    logical_or logical_not bitwise_and bitwise_or bitwise_not isnan isinf isfinite masked_fill round floor ceil
    trunc _to_copy"""
)
REDUCTIONS = _words(
    """sum mean amax amin max min prod var std var_mean std_mean linalg_vector_norm logsumexp cumsum any all argmax
    argmin"""
)
PRODUCTS = _words(
    """mm bmm addmm baddbmm addmv mv dot vdot matmul linear linear_backward convolution convolution_backward einsum
    scaled_dot_product_attention"""
)
COMMUTATIVE = _words("add mul maximum minimum eq ne logical_and logical_or bitwise_and bitwise_or mm bmm")
"""Ops whose inputs may be exchanged. For a matrix product, the exchange also transposes both inputs and the result."""
ROLES = {
    "view": VIEWS,
    "bookkeeping": BOOKKEEPING,
    "fill": FILLS,
    "cast": _words("_to_copy"),
    "elementwise": ELEMENTWISE,
    "reduction": REDUCTIONS,
    "product": PRODUCTS,
}

_KIND_OF = {name: kind for kind, names in SPELLINGS.items() for name in names.split()}
_NO_COPY = frozenset({"_to_copy", "index_copy", "copy", "_copy"})


@cache
def kind_of(domain: str, op: str) -> str:
    """Return the kind of an op; the kind of a custom op begins with its domain."""
    # `_foreach_add_` is `add` for each tensor: written in place or into a new tensor, the numbers are the same.
    name = op.removeprefix("_foreach_")
    if name.endswith("_") and not name.endswith("__"):
        name = name.removesuffix("_")
    # Lazy tensors have no views: their `t_copy` is `t` elsewhere. But `index_copy` is an op of its own.
    if name not in _NO_COPY:
        name = name.removesuffix("_copy")
    name = _KIND_OF.get(name, name)
    return name if domain in NEUTRAL_DOMAINS else f"{domain}.{name}"


def kind_of_name(full: str) -> str:
    """Return the kind of an op by its dotted name: `aten.tanh_backward`, `aten.sum.dim_IntList`."""
    # The overload is left out: it depends on how the mode spells a scalar.
    domain, _, rest = full.partition(".")
    return kind_of(domain, rest.partition(".")[0])


@cache
def role_of(kind: str) -> str:
    """Return `view`, `bookkeeping`, `fill`, `cast`, `elementwise`, `reduction`, `product`, or `compute` otherwise."""
    return next((role for role, kinds in ROLES.items() if kind in kinds), "compute")


def passes_through(kind: str) -> bool:
    """Check whether an op's result consists of the unchanged numbers of its first input."""
    return kind in VIEWS or kind in ("detach", "clone", "getitem", "tensor_list")


def gathers(kind: str) -> bool:
    """Check whether an op passes on all of its inputs, not only the first."""
    return kind == "tensor_list"


def computes(kind: str) -> bool:
    """Check whether an op can change a number: if so, its presence on only one side is worth reporting."""
    return role_of(kind) in ("elementwise", "reduction", "product", "compute")


def spelled(kind: str) -> str:
    """Return the kind as the op that represents it: `aten.tanh_backward`."""
    return kind if "." in kind else f"aten.{kind}"
