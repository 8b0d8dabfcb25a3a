"""The kernels of sums, matrix products, linear and attention, and the texts that users read about each."""

from __future__ import annotations

from ..registry import Operation
from .table import OpKernels, Row

VELTKAMP = "T. Dekker, A Floating-Point Technique for Extending the Available Precision, 1971"
FLASH = "T. Dao, FlashAttention-2, 2023"
REFERENCES = "numdrift.kernels.references.sum_references"

# fmt: off
ORDERS = (
    Row("split_k", "the inner dimension in 4 parts, their products added first to last",
        "((mm(a1,b1) + mm(a2,b2)) + mm(a3,b3)) + mm(a4,b4)", "split-K as in CUTLASS"),
    Row("reversed_k", "the inner dimension from last to first",
        "mm(a[:, ::-1], b[::-1])", "ATen's product, reordered"),
    Row("sequential", "rank-one updates one by one, product and sum rounded separately; up to k = 4096, slow",
        "s = 0; s = s + round(a[:,k] * b[k,:]), k = 0, 1, ...", "the definition"),
    Row("bf16", "inputs rounded to bfloat16, accumulated in float32",
        "mm(bf16(a), bf16(b)) in float32", "what bfloat16 matrix units compute"),
    Row("tf32", "inputs rounded to 11 significant bits as in TF32, accumulated in float32",
        "mm(t(a), t(b)), t(x) = c-(c-x), c = (2^13+1)*x", VELTKAMP),
)
"""Orders of accumulation and precisions of the inputs, for mm, bmm and addmm."""

ROUNDED_PRODUCTS = Row("decomposed", "every product rounded, then ATen's sum over k; needs memory for all products",
    "sum over k of round(a[i,k] * b[k,j])", "torch._inductor.decomposition, mm and bmm")
# linear is swapped above autograd, which differentiates the kernel: its backward has the precision of its forward.
LINEAR = (
    Row("decomposed", "t, mm and add as separate operations",
        "add(mm(x, t(W)), b)", "ATen/native/Linear.cpp, without its fused addmm"),
    Row("whole", "one operation for autograd, with the textbook formulas in the backward",
        "linear(x, W, b); backward g @ W, g^T @ x, sum(g)", "the definition"),
    Row("split_k", "the inner dimension in 4 parts, their products added first to last, then the bias",
        "((x1 @ W1^T + x2 @ W2^T) + x3 @ W3^T) + x4 @ W4^T + b", "split-K as in CUTLASS"),
    Row("bf16", "computed in bfloat16, and so are the gradients",
        "linear(bf16(x), bf16(W), bf16(b))", "torch.autocast"),
    Row("fp64", "computed in float64 and rounded once, and so are the gradients",
        "round(linear(double(x), double(W), double(b)))", "the op itself"),
)

# Kernels of the composite attention op that scripts call, and of the blockwise op that it becomes on the CPU.
COMPOSITE = (
    Row("math", "products and a softmax over whole rows; query and key each scaled by sqrt(scale)",
        "softmax((q*sqrt(scale)) @ (k*sqrt(scale))^T + mask) @ v", "aten._scaled_dot_product_attention_math",
        function="math_form"),
    Row("flash", "blockwise with a running maximum, on the CPU; no dropout, no gradient of the mask",
        "the online softmax over blocks of keys", "aten._scaled_dot_product_flash_attention_for_cpu", devices=("cpu",)),
    Row("decomposed", "matmul, scaling, mask, softmax and matmul as separate operations",
        "softmax((q @ k^T) * scale + mask) @ v", "A. Vaswani et al., Attention Is All You Need, 2017, equation 1"),
    Row("bf16", "the math form computed in bfloat16, and so are the gradients",
        "math(bf16(q), bf16(k), bf16(v))", "torch.autocast"),
    Row("fp64", "the math form in float64, rounded once, and so are the gradients; refuses dropout",
        "round(math(double(q), double(k), double(v)))", "aten._scaled_dot_product_attention_math"),
)
BLOCKWISE = (
    Row("decomposed", "products and a softmax over whole rows",
        "softmax((q @ k^T) * scale + mask) @ v, and the softmax's log-sum-exp",
        "A. Vaswani et al., Attention Is All You Need, 2017, equation 1"),
    Row("online", "blocks of 64 keys; sum and result are rescaled whenever the maximum grows",
        "M = max(m, max(b)); s = s*exp(m-M) + sum(exp(b-M)); o = o*exp(m-M) + exp(b-M) @ v_b; o / s",
        f"{FLASH}, algorithm 1"),
    Row("bf16", "over whole rows, each operation rounded to bfloat16",
        "bf16(softmax((q @ k^T) * scale + mask) @ v)", "as decomposed"),
    Row("fp64", "over whole rows in float64, rounded once",
        "round(softmax((double(q) @ double(k)^T) * scale + mask) @ double(v))", "as decomposed"),
)
# fp64 is not listed, because the generic kernel (the op called on float64 copies) applies.
BLOCKWISE_BACKWARD = (
    Row("decomposed", "over whole rows",
        "P = exp(scores - lse); dS = P * (g @ v^T - sum(g*out)) * scale; dS @ k, dS^T @ q, P^T @ g",
        f"{FLASH}, algorithm 2 without blocks"),
    Row("bf16", "over whole rows, each operation rounded to bfloat16",
        "as decomposed, in bfloat16", "as decomposed"),
    Row("reversed", "over whole rows, with sums over queries and keys from last to first",
        "as decomposed, the products' inner dimensions reversed", "as decomposed"),
)


def _sum_rows(end: str) -> tuple[Row, ...]:
    """Return a row for each order of summation. `end` is appended to each formula: a mean's division, or ""."""
    return (
        Row("sequential", "one element after the other; above 4096 elements a C compiler is needed",
            f"s = 0; s = s + x[i], i = 0, 1, ...{end}", "the definition", native=True),
        Row("pairwise", "halves added, down to single elements",
            f"S(x) = S(x[:n//2]) + S(x[n//2:]){end}",
            "N. Higham, The Accuracy of Floating Point Summation, SIAM J. Sci. Comput. 14(4), 1993", native=True),
        Row("kahan", "each addition corrects the rounding of the last; above 4096 elements a C compiler is needed",
            f"y = x[i]-c; t = s+y; c = (t-s)-y; s = t{end}",
            "W. Kahan, Further Remarks on Reducing Truncation Errors, CACM 8(1), 1965", native=True),
        Row("reversed", "ATen's sum of the elements from last to first",
            f"aten.sum(reversed(x)){end}", "ATen/native/cpu/SumKernel.cpp, the elements reversed"),
        Row("bf16", "the pairwise sum, each addition rounded to bfloat16",
            f"S(x) = bf16(S(x[:n//2]) + S(x[n//2:])){end}", "as pairwise"),
    )
# fmt: on


def _product(
    op: str, summary: str, module: str, rows: tuple[Row, ...], *, prefix: str = "", reference: bool = True
) -> OpKernels:
    return OpKernels(Operation(op, "product", summary, f"{REFERENCES}:{op}" if reference else ""), module, rows, prefix)


ATTENTION = "scaled_dot_product_attention"
FLASH_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu"

OPS = (
    *(
        OpKernels(
            Operation(op, "reduction", f"{op} of all elements or over some dimensions", f"{REFERENCES}:{op}"),
            "sums",
            _sum_rows(end),
            f"{op}_",
        )
        for op, end in (("sum", ""), ("mean", "; divided by n"))
    ),
    _product("mm", "product of two matrices", "matmul", (*ORDERS, ROUNDED_PRODUCTS), prefix="mm_"),
    _product("bmm", "products of two batches of matrices", "matmul", (*ORDERS, ROUNDED_PRODUCTS), prefix="mm_"),
    _product("addmm", "beta * self + alpha * (product of two matrices)", "matmul", ORDERS, prefix="addmm_"),
    _product("linear", "x @ W^T + b, above autograd", "matmul", LINEAR, prefix="linear_", reference=False),
    _product(ATTENTION, "attention, above autograd", "attention", COMPOSITE),
    _product(
        FLASH_ON_CPU,
        "attention on the CPU, with the log-sum-exp that its backward needs",
        "flash_attention",
        BLOCKWISE,
        reference=False,
    ),
    _product(
        f"{FLASH_ON_CPU}_backward",
        "gradients of attention on the CPU",
        "flash_attention",
        BLOCKWISE_BACKWARD,
        prefix="backward_",
        reference=False,
    ),
)
