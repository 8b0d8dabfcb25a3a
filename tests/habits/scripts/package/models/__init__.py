"""The models of the package."""

from .net import Net

__all__ = ["Net"]
