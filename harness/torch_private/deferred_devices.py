"""The devices of torch whose tensors have their values later than the calls of their ops."""

from __future__ import annotations

from ..records import mode_registry

DEFERRED_DEVICES = mode_registry.DEFERRED_DEVICES
