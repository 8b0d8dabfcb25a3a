"""Every private torch name that numdrift touches, each behind a guard.

A hook that this torch version lacks raises NotAvailable with the version in its reason; nothing else in
numdrift reads a name with a leading underscore from torch. Verified on torch 2.13.0.
"""
