from ..registry import KernelRegistry


def register(registry: KernelRegistry) -> None:
    pass
