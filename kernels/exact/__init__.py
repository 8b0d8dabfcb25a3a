"""Ops on mpmath numbers, in mpmath's working precision; the rest of numdrift runs without mpmath."""
