"""Alignment: the calls of two tapes that compute the same things.

    in   two tapes of one step: the reference's and the other mode's
    out  blocks of calls, in an order in which either side can be executed

A block holds the fewest calls of both sides that start from values of both sides and end in values of both sides. The
sides may divide the work differently: a compiler decomposes an op into five nodes, or computes a value twice. Calls are
paired by their op, their inputs and shapes, and the module and line that called them. Bits are not compared, since they
may differ.

`storage_flow` follows the values of one tape. `op_units` groups its calls by the ops of the script, `unit_pairs` pairs
those of both sides, and `alignment` makes the blocks. `value_links` links the values of both sides. The last two have a
worked example each.
"""
