"""The devices of torch on which the values of an op are computed later than its call."""

from __future__ import annotations

from ...records.modes import mode_registry

DEFERRED_DEVICES = mode_registry.DEFERRED_DEVICES
