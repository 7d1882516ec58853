"""What a person sees when something goes wrong: one line on the error stream, and an exit code that says of which kind.

Complaints about input, files and folders end with 2, a comparison in which a method diverged with 3. Anything else was
not foreseen: its details go to a file, and the line says which; the exit code is 70. ``MAJORANT_DEBUG=1`` shows the
details on the terminal as well.
"""

from __future__ import annotations

import functools
import os
import platform
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from majorant.app.files import atomic_write_text, explain_os_error
from majorant.cli._garbage import search_as_usual
from majorant.cli._streams import let_go_of_output
from majorant.cli.terminal import complain, warn

CLOSED, INTERRUPTED, TERMINATED, WRONG, DIVERGED, UNFORESEEN = 141, 130, 143, 2, 3, 70
ClickException: type[BaseException] = typer.BadParameter.__mro__[2]  # wherever this version of typer keeps click


class Terminated(KeyboardInterrupt):
    """The system asks the process to end (SIGTERM): it puts things in order as for a person who interrupts it."""


class Commands(TyperGroup):
    """Commands whose failures are told as this file says."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        with told():
            return super().invoke(ctx)


@contextmanager
def told() -> Iterator[None]:
    """Turns exceptions into a line and an exit code, and warnings into a line each, told once."""
    previous, ending = warnings.showwarning, heed_termination()
    warnings.showwarning = lambda message, *rest, **more: once(str(message))
    once = functools.cache(warn)
    try:
        yield
    except (typer.Exit, typer.Abort, ClickException):
        raise
    except BrokenPipeError:
        let_go_of_output()
        raise typer.Exit(CLOSED) from None
    except KeyboardInterrupt as error:
        ended = isinstance(error, Terminated)
        complain(str(error) or "nothing is kept", "terminated" if ended else "interrupted")
        raise typer.Exit(TERMINATED if ended else INTERRUPTED) from None
    except Exception as error:
        words = complaint(error)
        if words is None:
            unforeseen(error)
        complain(words)
        raise typer.Exit(WRONG) from None
    finally:
        warnings.showwarning = previous
        if ending is not None:
            signal.signal(signal.SIGTERM, ending)


def heed_termination() -> Any:
    """Turns SIGTERM into an exception; what was to be done before, or None where signals are not ours to handle."""

    def terminate(*_: Any) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, terminate) or signal.SIG_DFL


def complaint(error: Exception) -> str | None:
    """What to say of an error that was foreseen; None of any other."""
    if isinstance(error, OSError):
        return explain_os_error(error, error.filename or "the run folder") if error.errno else str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        detail = f" ({error})".partition("\n")[0] if str(error) else ""
        return f"this does not fit into memory{detail}: give fewer clients, samples or seeds, or a smaller model"
    if isinstance(error, RuntimeError):
        from majorant.engines.divergence import Diverged
        from majorant.engines.hosts import HostLost

        return str(error) if isinstance(error, Diverged | HostLost) else None
    if isinstance(error, ImportError):
        return str(error) if error.name is None else None  # a missing extra, or a broken installation
    return str(error) if isinstance(error, ValueError) and not isinstance(error, ValidationError) else None


def unforeseen(error: Exception) -> NoReturn:
    """Writes the details of an error to a file, and says what to do with it."""
    import majorant

    details = "".join(traceback.format_exception(error))
    about = f"majorant {majorant.__version__}, Python {platform.python_version()}, {platform.platform()}"
    place = write_details(f"{about}\n{sys.argv}\n\n{details}", getattr(error, "run_folder", None))
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    complain(f"this was not foreseen ({what}): please report it, with the file {place}")
    if os.environ.get("MAJORANT_DEBUG") == "1":
        sys.stderr.write(details)
    raise typer.Exit(UNFORESEEN) from None


def write_details(text: str, folder: Path | None) -> Path:
    """Writes ``error.log`` into the run folder, or where there is none a new file among the temporary ones."""
    if folder is not None and folder.is_dir():
        with suppress(OSError):
            atomic_write_text(folder / "error.log", text)
            return folder / "error.log"
    descriptor, name = tempfile.mkstemp(prefix="majorant-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


@contextmanager
def at_work_in(folder: Path, left: Callable[[], str]) -> Iterator[None]:
    """Where details of an unforeseen error may go, and what to say is left after an interruption."""
    search_as_usual()
    try:
        yield
    except KeyboardInterrupt as error:
        raise type(error)(left()) from None
    except Exception as error:
        vars(error)["run_folder"] = folder
        raise
