"""The causes of a difference between two modes: their tapes of one step are aligned, mixed and searched."""
