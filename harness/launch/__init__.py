"""Plans, starts, supervises and ends runs: one process per mode, or one per rank."""
