"""Errors: the distance of a block's results from exact arithmetic, and the distance that a correct kernel may have.

    in   the recorded inputs of a block, and its results
    out  the error of the results against double precision, relative to the effect of rounding the inputs and, if one is
         known, to a bound

Results are judged on the inputs that the block had, so no error is counted again downstream. `local_error`
defines the numbers, `bounds` names the formulas from the literature behind the bounds, and `sum_lengths` says why long
sums may err more.
"""
