"""addcmul, addcdiv and lerp on mpmath numbers. Numbers that are not tensors count as they are given."""

from __future__ import annotations

from mpmath import mp, mpf


def addcmul(base: mpf, first: mpf, second: mpf, *, value: float = 1) -> mpf:
    return base + mp.convert(value) * first * second


def addcdiv(base: mpf, first: mpf, second: mpf, *, value: float = 1) -> mpf:
    return base + mp.convert(value) * first / second


def lerp(start: mpf, end: mpf, weight: mpf | float) -> mpf:
    return start + mp.convert(weight) * (end - start)
