"""The comparison of a replayed snapshot with its recorded outputs."""
