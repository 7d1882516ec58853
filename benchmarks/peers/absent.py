"""Packages that a tool imports and this work does not use: where one is not installed, its first use is an error."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Unused(type):
    """Stands for anything in such a package: it can be named, but neither called nor made."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unused(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise ImportError(f"{cls.__name__} is not installed, and was used")


class AbsentModule(ModuleType):
    """A package of which everything is unused."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unused(f"{self.__name__}.{name}", (), {})


class Finder:
    """Asked by Python after all places where packages are installed."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = name.partition(".")[0] in self.packages
        return ModuleSpec(name, self, is_package=True) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


def may_be_absent(*packages: str) -> None:
    """From now on these can be imported also where they are not installed."""
    sys.meta_path.append(Finder(packages))  # type: ignore[arg-type]
