"""Commands that several processes run together: the flags by which they find each other, and who speaks.

Process 0 writes and prints. The others run the same command, write into a folder of their own that ends with them, and
say nothing but what goes wrong.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from majorant.cli.terminal import console

PANEL = "Several processes"
FLAGS: dict[str, Any] = {
    "coordinator": Annotated[
        str | None,
        typer.Option(
            help="Run on several machines together: the address of process 0, or auto under SLURM, Open MPI or "
            "Kubernetes.",
            metavar="HOST:PORT",
            rich_help_panel=PANEL,
        ),
    ],
    "process_id": Annotated[
        int | None, typer.Option(help="Which of the processes this is, from 0.", rich_help_panel=PANEL)
    ],
    "processes": Annotated[int | None, typer.Option(help="How many processes there are.", rich_help_panel=PANEL)],
}


def with_hosts(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the flags, and lets it run as one of several processes where they are given."""
    own = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in FLAGS.items()
    ]

    @functools.wraps(command)
    def called(*args: Any, **values: Any) -> None:
        where = [values.pop(name, None) for name in FLAGS]
        if where == [None, None, None]:
            return command(*args, **values)
        from majorant.engines.hosts import follows, join

        with own_output():
            join(*where)
            if not follows():
                return command(*args, **values)
            with in_silence() as folder:
                given = {} if values.get("resume") else {"out": folder / "run"}
                return command(*args, **values | given)

    parameters = [*own.parameters.values(), *extra]
    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """Keeps what libraries below Python print, as the one that connects processes does, out of our output."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no output
        yield
        return
    os.dup2(2, 1)
    output, sys.stdout = sys.stdout, os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        sys.stdout.close()
        sys.stdout = output


@contextlib.contextmanager
def in_silence() -> Iterator[Path]:
    """A folder for what nobody will read, and no output."""
    quiet, console.quiet = console.quiet, True
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            tempfile.TemporaryDirectory(prefix="majorant-") as folder,
        ):
            yield Path(folder)
    finally:
        console.quiet = quiet
