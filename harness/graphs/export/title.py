"""What is written on a node: the op, short enough that Netron does not cut it."""

from __future__ import annotations

import re

LONGEST = 21
"""Netron 9 cuts a title with more characters in its middle."""

MARK = "⚠ "

KERNEL = re.compile(r"(?:cpp|triton(?:_[a-z]+)?)_fused_(?P<ops>.*?)_?(?P<number>\d{1,6})")


def title(op: str, *, marked: bool = False) -> str:
    """The op's title: whole where it fits, else with an ellipsis where it tells least.

    Of a fused kernel the first ops and the number stay, of another op its beginning and its last word.
    """
    room = LONGEST - (len(MARK) if marked else 0)
    plain = op.replace(".", "_") or "unknown"
    kernel = KERNEL.fullmatch(plain)
    if kernel:
        plain = _kernel(kernel["ops"], kernel["number"], room)
    elif len(plain) > room:
        plain = _shortened(plain, room)
    return f"{MARK}{plain}" if marked else plain


def _kernel(ops: str, number: str, room: int) -> str:
    """`fused_add_3`, or `sum_tanh_backward_0` where "fused" has no room, or `mul_sub_sum_tanh…_1`."""
    parts = [part for part in (ops, number) if part]
    for whole in ("_".join(["fused", *parts]), "_".join(parts)):
        if len(whole) <= room:
            return whole
    end = f"…_{number}"
    kept = ops[: room - len(end) + 1].rpartition("_")[0] or ops[: room - len(end)]
    return f"{kept}{end}"


def _shortened(plain: str, room: int) -> str:
    last = plain.rpartition("_")[2]
    end = f"_{last}" if len(last) < room // 2 else plain[-(room // 2) :]
    return f"{plain[: room - 1 - len(end)].rstrip('_')}…{end}"
