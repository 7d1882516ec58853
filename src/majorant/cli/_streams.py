"""Terminals that know few characters, and readers that go away."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys

PLAIN = {"λ": "lambda", "β": "beta", "π": "pi", "±": "+/-", "−": "-", "–": "-", "×": "x", "…": "...", "→": "->",
         "≤": "<=", "≥": ">=", "·": "-", "•": "*", "━": "-", "╸": "-", "╺": "-", "’": "'"}  # fmt: skip


def plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Letters that every terminal has, for a codec that cannot say something."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(c, "?") for c in error.object[error.start : error.end]), error.end


def adapt_streams() -> None:
    """Lets output streams replace what they cannot say, rather than fail: in UTF-8, names that are no text."""
    codecs.register_error("majorant", plain_letters)
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace" if encoding == "utf8" else "majorant")


def let_go_of_output() -> None:
    """Sends what is still to be written nowhere: the reader of our output has seen enough."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
