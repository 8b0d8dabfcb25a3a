"""Calls of a function or module in place of a training: what is called, with which inputs, and the steps of the calls.

`call_targets` and `captured_calls` find the calls, each a `PlannedCall`; `call_steps` makes each of them a step.
"""
