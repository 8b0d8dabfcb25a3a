"""Names of a device's kernels, short enough for a table.

    void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int, ...)

becomes `vectorized_elementwise_kernel<CUDAFunctor_add>`: arguments and templates are cut, except for the part that
distinguishes two kernels of one template. Generated names (`triton_poi_fused_add_0`, `ampere_sgemm_32x32_tn`) stay
unchanged.
"""

from __future__ import annotations

import re

LONGEST = 80
"""The largest number of characters of a name in a table."""

_NOISE = re.compile(r"^(?:void|static|__global__)\s+|\(anonymous namespace\)::|<unnamed>::|\[clone [^]]*\]")
_TELLING = re.compile(
    r"\w*(?:Functor|Ops?\b|Ops_)\w*|\w+_kernel_(?:cuda|impl)\b|\b(?:cutlass|sm\d+|cudnn|nvjet)_\w+|\b\w+_kernel\b"
)
"""The parts of template arguments that show what a kernel computes."""

_GENERIC = re.compile(r"^(?:gpu_kernel_impl\w*|ReduceOp|Ops?|kernel)$")


def short_kernel(name: str) -> str:
    """Return the name without return type, namespaces, templates and arguments.

    The part of the template that shows what the kernel computes follows in <>.
    """
    text = _NOISE.sub("", name.strip())
    while _NOISE.match(text):
        text = _NOISE.sub("", text, count=1)
    plain, arguments = _parts(text)
    words = [part for part in plain.strip().split()[-1:] for part in part.split("::") if part]
    # A generic name keeps the namespace before it.
    called = "::".join(words[-2:] if _GENERIC.match(words[-1]) else words[-1:]) if words else text
    if arguments:
        telling = next((candidate for candidate in _TELLING.findall(arguments) if not _GENERIC.match(candidate)), "")
        called += f"<{telling}>" if telling and telling != called else ""
    return called if len(called) <= LONGEST else f"{called[: LONGEST - 3]}..."


def _parts(text: str) -> tuple[str, str]:
    """Split a name into the part before its template and arguments, and the content of the template."""
    plain, template, depth = "", "", 0
    for place, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">" and depth:
            depth -= 1
            if not depth and text[place + 1 :].lstrip().startswith("::"):
                continue  # the template of a class; the kernel's own name follows
        elif letter == "(" and not depth and plain.strip():
            break
        if depth:
            template += letter
        elif letter != ">":
            plain += letter
    return plain, template
