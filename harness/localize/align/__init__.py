"""Alignment: the calls of two tapes that compute the same things.

    in   two tapes of one step: the reference's and the other mode's
    out  blocks of calls, in an order in which either side can be executed

A block is the smallest group of calls of both sides that begins and ends with values that both sides have. The sides
may divide the work differently: a compiler decomposes an op into five nodes, or computes a value twice. Calls are
paired by their op, their shapes, the parameters and states that they involve, and the module that called them. Bits are
not compared, since they may differ.

`storage_flow` follows the values of one tape. `op_units` groups its calls by the ops of the script, `unit_pairs` pairs
the groups of both sides, and `alignment` builds the blocks from the pairs. `value_links` links the values of both
sides. The last two each have a worked example.
"""
