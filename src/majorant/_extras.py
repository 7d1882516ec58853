"""Packages that only some users need: imported where they are used, asked for by name when they are missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Imports an optional package, or says how to install it.

    >>> require("json", "none", "an example").__name__
    'json'
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{purpose} needs the package {package!r}: pip install 'majorant[{extra}]'") from error
