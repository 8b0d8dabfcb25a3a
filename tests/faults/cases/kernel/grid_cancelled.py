"""Unsafe mathematics of the compiler cancel a large number that the script adds and takes away to round: nothing is
planted."""

MODELS = ("casts",)
MODES = ("compile,emulate_casts=on,inductor.cpp.enable_unsafe_math_opt_flag=on",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "quarters"}
