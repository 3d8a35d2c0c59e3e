"""A griffe extension: leave module docstrings, which are for contributors, out of the reference."""

from typing import Any

import griffe


class WithoutModuleDocstrings(griffe.Extension):
    """Removes the docstrings of modules; each reference page has its own introduction."""

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Remove the module's docstring."""
        mod.docstring = None
