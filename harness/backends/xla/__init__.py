"""torch_xla (PJRT)."""
