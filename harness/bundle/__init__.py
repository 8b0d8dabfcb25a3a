"""Bundles: one archive of an investigation for whoever owns the kernel, checked and replayed where it is opened."""
