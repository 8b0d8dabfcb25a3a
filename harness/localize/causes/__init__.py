"""Causes: from blocks that may differ to culprits that are proven.

    in   blocks, and the bits of both sides' results
    out  culprits, each with the drift when only it is swapped in and when only it is swapped out

`suspects` compares the arguments of the calls and finds the blocks that may differ; it computes nothing. `examination`
executes these blocks on the same inputs: do the bits differ, and how far is each side from exact arithmetic?
`swap_sites` joins blocks that can only be swapped together into sites, `split_sites` splits sites that need not be
joined, and `site_causes` groups sites that look alike into causes. `proofs` executes hybrids: a cause is proven if
swapping it in creates the drift and swapping it out removes it. `left_over` swaps all proven causes out together and
measures the drift that is left.

`swap_sites` has a worked example.
"""
