"""Errors: the distance of a block's results from exact arithmetic, and the distance that a correct kernel may have.

    in   the recorded inputs of a block, and its results
    out  the error in double precision, relative to rounding of the inputs, and to a bound if one is known

Results are judged on the inputs that the block had, so no error is counted again downstream. `local_error`
defines the numbers, `bounds` names the formulas of the literature behind the bounds, and `sum_lengths` says why long
sums may err more.
"""
