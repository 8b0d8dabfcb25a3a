"""Eager execution, op by op, on the CPU or on a device."""
