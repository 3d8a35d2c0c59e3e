"""Exports that are loaded on first use, so that importing a package does not import the libraries behind it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package whose names are loaded on first use."""
    namespace = vars(sys.modules[package])
    module_of = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # Stored in the package, so that the next access does not come here.
        value = namespace[name] = getattr(import_module(f".{module_of[name]}", package), name)
        return value

    return load, lambda: sorted(namespace["__all__"])
