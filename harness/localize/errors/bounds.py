"""Bounds on the distance of a correct kernel's results from exact arithmetic on its recorded inputs, for any order of
summation.

Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002 (gamma_n, u and eta:
see bounded_call).

    elementwise ops      u |r| (sqrt: 2 u |r|). For ops of more than one step, running error analysis (section
                         3.3) of the formula that torch documents, in every form in which kernels compute it
    sum                  gamma_(n-1) sum |x|                         (section 4.2)
    mean                 the bound of the sum over n, and the rounding of the quotient, or of 1 / n and the product
    products             gamma_k |A| |B| + k eta                     ((3.13); for each element this is the inner
                         product (3.5))
    beta C + alpha A B   gamma_(k + 1) (|beta C| + |alpha| |A| |B|), and the roundings of alpha, beta and the
                         products with them
    convolutions         as products, with k the number of products that are added up in one element; likewise for the
                         parts of the backward. An element has the largest bound of its plane: see `_of_planes`

A correct kernel is assumed to accumulate results narrower than float32 in float32 and to round them once at the end,
and to compute other results in their own dtype. A number among the arguments is rounded to the result's dtype first.
Strassen, Winograd and Fourier transforms are not covered, because they compute different sums. There is no bound for
the exponential and other library functions, nor for the ops that use them (softmax, gelu, normalizations).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .bounded_call import BoundedCall, Computed, Digits, NoBound, any_of, bounded_call
from .sum_lengths import kernel_terms, positions, product_terms

SELECTED = """
abs amax amin cat clamp clamp_max clamp_min clone embedding gather index_select masked_fill maximum minimum neg
relu stack threshold_backward where
"""
SELECTIONS = frozenset(SELECTED.split())
"""Ops whose results are elements of their arguments, or the absolute values of such elements."""


def error_bound(
    operation: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], dtype: torch.dtype, output: int = 0
) -> Tensor | None:
    """Return a bound on the error of each element of a result with this dtype; None if no bound is known.

    `operation` is an overload of an aten op, in place or not; its floating-point arguments are doubles. `output` is the
    index of the result. Nothing is written.
    """
    call = bounded_call(operation, arguments, keywords, dtype, output)
    if call is None:
        return None
    try:
        if call.name in SELECTIONS:
            # nothing is computed, but the selected elements may be stored in fewer digits
            value = call.apply()
            selected = Computed(value, torch.zeros_like(value), call.digits).rounded_to(Digits.of(call.dtype))
            return selected.error
        if call.name not in FORMULAS:
            return None
        computed = FORMULAS[call.name](call)
    except NoBound:
        return None
    # the result is rounded to its own digits, if it was computed with different ones
    digits = Digits.of(dtype)
    return (computed if digits == call.digits else computed.rounded_to(digits)).error + digits.least


def _times_alpha(call: BoundedCall, name: str) -> Computed:
    value = call.number(name)
    return value if call.arguments.get("alpha", 1) == 1 else value * call.number("alpha")


def _div(call: BoundedCall) -> Computed:
    """Divide; a divisor that is one number for all elements may be inverted first."""
    if call.arguments.get("rounding_mode") is not None:
        raise NoBound
    dividend, divisor = call.number("self"), call.number("other")
    quotient = dividend / divisor
    if divisor.value.dim():
        return quotient
    return any_of(quotient, dividend * (call.digits.rounded(1.0) / divisor))


def _converted(call: BoundedCall) -> Computed:
    source = call.arguments["src"] if "src" in call.arguments else call.arguments["self"]
    return call.digits.rounded(source.expand_as(call.arguments["self"]))


def _addcmul(call: BoundedCall) -> Computed:
    """Compute self + value * tensor1 * tensor2, with the products in any order."""
    left, right = call.number("tensor1"), call.number("tensor2")
    if call.arguments["value"] == 1:
        return call.number("self") + left * right
    return call.number("self") + _product(call.number("value"), left, right)


def _addcdiv(call: BoundedCall) -> Computed:
    """Compute self + value * tensor1 / tensor2, with either the product or the quotient first."""
    above, below = call.number("tensor1"), call.number("tensor2")
    if call.arguments["value"] == 1:
        return call.number("self") + above / below
    value = call.number("value")
    return call.number("self") + any_of(value * (above / below), (value * above) / below)


def _product(first: Computed, second: Computed, third: Computed) -> Computed:
    return any_of((first * second) * third, first * (second * third), (first * third) * second)


def _lerp(call: BoundedCall) -> Computed:
    """Compute self + weight (end - self), or from the other end: end - (end - self) (1 - weight)."""
    start, end, weight = call.number("self"), call.number("end"), call.number("weight")
    distance = end - start
    return any_of(start + weight * distance, end - distance * (call.digits.rounded(1.0) - weight))


def _tanh_backward(call: BoundedCall) -> Computed:
    """Compute g (1 - y y), multiplied out or factored."""
    g, y = call.number("grad_output"), call.number("output")
    unity = call.digits.rounded(1.0)
    return any_of(g * (unity - y * y), g - g * (y * y), g - (g * y) * y, g * ((unity - y) * (unity + y)))


def _sigmoid_backward(call: BoundedCall) -> Computed:
    """Compute g (1 - y) y in any order."""
    g, y = call.number("grad_output"), call.number("output")
    return _product(g, call.digits.rounded(1.0) - y, y)


def _mean(call: BoundedCall) -> Computed:
    summands = call.summands()
    total = summands.sum(call.arguments.get("dim"), keepdim=call.arguments.get("keepdim", False))
    return _over(total, summands.value.numel() // max(total.value.numel(), 1))


def _over(total: Computed, terms: int) -> Computed:
    """Divide a sum by the number of its terms, or multiply it by the inverse."""
    if not terms:
        raise NoBound
    return any_of(total / total.digits.rounded(float(terms)), total * total.digits.rounded(1.0 / terms))


def _norm(call: BoundedCall) -> Computed:
    """Compute sqrt(sum x x)."""
    if call.arguments["ord"] != 2:
        raise NoBound
    summands = call.summands()
    return (summands * summands).sum(call.arguments["dim"], keepdim=call.arguments["keepdim"]).sqrt()


def _mse_loss(call: BoundedCall) -> Computed:
    apart = call.number("self") - call.number("target")
    squares = apart * apart
    reduction = call.arguments["reduction"]
    if reduction == 0:
        return squares
    return squares.sum() if reduction == 2 else _over(squares.sum(), squares.value.numel())


def _mse_loss_backward(call: BoundedCall) -> Computed:
    """Compute 2 g (self - target), divided by the number of elements for a mean."""
    apart = call.number("self") - call.number("target")
    share = 2.0 / apart.value.numel() if call.arguments["reduction"] == 1 and apart.value.numel() else 2.0
    return _product(call.digits.rounded(share), apart, call.number("grad_output"))


def _products(call: BoundedCall, roundings: int, products: int) -> Computed:
    """Compute sums of products, and a bound on their error from the absolute values of the factors.

    `roundings` is the number of roundings of each product.
    """
    error = call.digits.gamma(roundings) * call.apply(torch.abs)
    return Computed(call.apply(), error + call.digits.least * (products + 1), call.digits)


def _product_of(left: str) -> Callable[[BoundedCall], Computed]:
    """Return the formula of a product over the last dimension of the argument `left`, with or without a bias."""

    def formula(call: BoundedCall) -> Computed:
        terms = product_terms(call.arguments[left].shape)
        return _products(call, terms + (call.arguments.get("bias") is not None), terms)

    return formula


def _added_product(left: str) -> Callable[[BoundedCall], Computed]:
    """Return the formula of beta C + alpha A B, where A is the argument `left`."""

    def formula(call: BoundedCall) -> Computed:
        terms = product_terms(call.arguments[left].shape)
        (alpha, first), (beta, second) = call.factor("alpha"), call.factor("beta")
        off = call.digits.gamma(terms + 1)
        off += max(first, second) * (1 + off)
        error = off * call.apply(torch.abs, alpha=alpha, beta=beta)
        underflow = call.digits.least * (terms * max(alpha, 1.0) + 2)
        return Computed(call.apply(), error + underflow, call.digits)

    return formula


def _convolution(call: BoundedCall) -> Computed:
    weight, groups = call.arguments["weight"], call.arguments["groups"]
    terms = kernel_terms(weight.shape, groups, over_first=call.arguments["transposed"])
    return _of_planes(_products(call, terms + (call.arguments["bias"] is not None), terms))


def _of_planes(sums: Computed) -> Computed:
    """Replace the error of each element by the largest one of its plane, which is all but the first two dimensions.

    Transforms mix the elements of a plane. Winograd's adds rounding errors of the neighbours even to an element whose
    products are all zero (A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016).
    """
    plane = list(range(2, sums.error.dim()))
    return replace(sums, error=sums.error.amax(plane, keepdim=True).expand_as(sums.error)) if plane else sums


def _convolution_backward(call: BoundedCall) -> Computed:
    """Compute the gradient of the input, the weight or the bias. The bound on its error follows from the absolute
    values of the arguments."""
    arguments, output = call.arguments, call.output
    gradient, weight = arguments["grad_output"], arguments["weight"]
    if not arguments["output_mask"][output]:
        raise NoBound
    if output == 2:
        return call.number("grad_output").sum([0, *range(2, gradient.dim())])
    if output == 0:
        terms = kernel_terms(weight.shape, arguments["groups"], over_first=not arguments["transposed"])
    else:
        terms = positions((arguments["input"] if arguments["transposed"] else gradient).shape)
    # compute only this output: each of the others takes as long, and the call may have left them out
    single_output = {**arguments, "output_mask": [number == output for number in range(3)]}
    return _of_planes(_products(replace(call, arguments=single_output), terms, terms))


def _embedding_dense_backward(call: BoundedCall) -> Computed:
    """Compute each row as the sum of the gradients of its occurrences."""
    if call.arguments["scale_grad_by_freq"]:
        raise NoBound
    # the row with the most occurrences is the sum with the most terms
    occurrences = torch.bincount(call.arguments["indices"].reshape(-1), minlength=1)
    return _products(call, int(occurrences.max()), 0)


FORMULAS: Mapping[str, Callable[[BoundedCall], Computed]] = {
    "_to_copy": _converted,
    "add": lambda call: call.number("self") + _times_alpha(call, "other"),
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "addmm": _added_product("mat1"),
    "addmv": _added_product("mat"),
    "baddbmm": _added_product("batch1"),
    "bmm": _product_of("self"),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "copy": _converted,
    "div": _div,
    "dot": _product_of("self"),
    "embedding_dense_backward": _embedding_dense_backward,
    "lerp": _lerp,
    "linalg_vector_norm": _norm,
    "linear": _product_of("input"),
    "matmul": _product_of("self"),
    "mean": _mean,
    "mm": _product_of("self"),
    "mse_loss": _mse_loss,
    "mse_loss_backward": _mse_loss_backward,
    "mul": lambda call: call.number("self") * call.number("other"),
    "mv": _product_of("self"),
    "reciprocal": lambda call: call.digits.rounded(1.0) / call.number("self"),
    "rsub": lambda call: call.number("other") - _times_alpha(call, "self"),
    "sigmoid_backward": _sigmoid_backward,
    "sqrt": lambda call: call.number("self").sqrt(),
    "sub": lambda call: call.number("self") - _times_alpha(call, "other"),
    "sum": lambda call: call.summands().sum(call.arguments.get("dim"), keepdim=call.arguments.get("keepdim", False)),
    "tanh_backward": _tanh_backward,
}
"""Formulas by the op's name, without overload and without the underscore of an in-place op."""
