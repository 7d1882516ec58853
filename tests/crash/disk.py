"""Faults at chosen moments: what is done to the files of one folder is counted, and from one operation on goes wrong.

`Disk(folder, at, fault)` takes the place of the functions of `os` that change files. Operations on other folders (the
cache of compiled programs, say) are none of its business. A fault is a function of the operation that was about to
happen; `PowerCut` ends a process without ending it: nothing reaches the disk any more, so what is left is what
``kill -9`` would leave.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

CHANGES = ("open", "write", "fsync", "ftruncate", "mkdir", "rename", "replace", "unlink", "remove", "rmdir")
Operation = Callable[[], Any]
Fault = Callable[[str, Operation, tuple], Any]


class PowerCut(BaseException):
    """From here on nothing is written."""


class Disk:
    """The operations on a folder, counted from 0; from number ``at`` on, ``fault(name, operation, arguments)``."""

    def __init__(self, folder: Path, at: int | None = None, fault: Fault | None = None) -> None:
        self.folder, self.at, self.fault = os.path.realpath(folder), at, fault
        self.count, self.descriptors, self.names = 0, set[int](), list[str]()
        self.stack: list[Any] = []

    def __enter__(self) -> Disk:
        for name in CHANGES:
            self.patch(name, self.wrapped(name, getattr(os, name)))
        close = os.close
        self.patch("close", lambda descriptor: (self.descriptors.discard(descriptor), close(descriptor))[1])
        return self

    def __exit__(self, *_: object) -> None:
        for patch in reversed(self.stack):
            patch.stop()
        for descriptor in self.descriptors:  # as the system does when a process ends; locks end with them
            os.close(descriptor)

    def patch(self, name: str, function: Callable) -> None:
        """Puts a function in the place of one of the system's."""
        patch = mock.patch.object(os, name, function)
        patch.start()
        self.stack.append(patch)

    def wrapped(self, name: str, original: Callable) -> Callable:
        """The system's function, counted."""

        def function(*args: Any, **options: Any) -> Any:
            operation = lambda: original(*args, **options)
            if not self.concerned(args, options):
                return operation()
            if name == "open" and not (args[1] & (os.O_CREAT | os.O_TRUNC)):
                found = operation()
            else:
                number, self.count = self.count, self.count + 1
                self.names.append(name)
                here = self.at is not None and number >= self.at and self.fault is not None
                found = self.fault(name, operation, args) if here else operation()  # type: ignore[misc]
            if name == "open":
                self.descriptors.add(found)
            return found

        return function

    def concerned(self, args: tuple, options: dict[str, Any]) -> bool:
        """Whether an operation is on the folder, or in it."""
        if isinstance(args[0], int):
            return args[0] in self.descriptors
        inside = lambda path: os.path.realpath(os.path.dirname(path)) + os.sep + os.path.basename(path) + os.sep
        if options.get("dir_fd") is not None:
            return options["dir_fd"] in self.descriptors
        return inside(os.fspath(args[0])).startswith(self.folder + os.sep)


def power_cut(name: str, operation: Operation, args: tuple) -> Any:
    """Nothing reaches the disk: half of what was being written did."""
    raise PowerCut


def cut_within() -> Fault:
    """Half of what was being written is written; then nothing reaches the disk."""
    seen: list[str] = []

    def fault(name: str, operation: Operation, args: tuple) -> Any:
        if not seen and name == "write":
            WRITE(args[0], bytes(args[1])[: len(args[1]) // 2])
        seen.append(name)
        raise PowerCut

    return fault


WRITE = os.write


def killed(when: str) -> Fault:
    """The process ends by SIGKILL: ``before`` the operation, ``after`` it, or ``within`` a write."""

    def fault(name: str, operation: Operation, args: tuple) -> Any:
        if when == "after":
            operation()
        elif when == "within" and name == "write":
            WRITE(args[0], bytes(args[1])[: len(args[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    return fault


def refuses(code: int, *names: str) -> Fault:
    """The system refuses some operations (all, where none is named) with an error from now on."""

    def fault(name: str, operation: Operation, args: tuple) -> Any:
        if names and name not in names:
            return operation()
        raise OSError(code, os.strerror(code), args[0] if isinstance(args[0], str | os.PathLike) else None)

    return fault


def receives(number: int) -> Fault:
    """The process receives a signal, once."""
    seen: list[str] = []

    def fault(name: str, operation: Operation, args: tuple) -> Any:
        if not seen:
            seen.append(name)
            os.kill(os.getpid(), number)
        return operation()

    return fault
