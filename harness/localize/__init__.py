"""Where a difference between two modes comes from: their tapes of one step aligned, mixed and searched."""
