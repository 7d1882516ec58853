"""Programs that are kept between processes as they were lowered: a command that was given before traces nothing.

JAX keeps what it has compiled, but a program must be traced and lowered to be found there, which takes longer than to
read it, and needs Python's lock. Beside these files a program is kept as `jax.export` serializes it (StableHLO), under
a digest of all that it is made from: what the caller says (`Resources.made_from`, for settings and data), the library's
sources, versions, JAX's settings, and the shapes of its arguments. A file that is damaged, or cannot be read for any
other reason, is as good as none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from jax import export

from majorant.core.compilation import LOCATIONS, staged

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy")
TRUSTED = ("majorant.", "optax.", "jax.")  # whose named tuples a file may name
OF_NO_MATTER = {"jax_compilation_cache_dir", LOCATIONS}


def lowered(made_from: str, jitted: Any, args: Any, signature: Any, **options: Any) -> Any:
    """A jitted function, lowered for these arguments: from its file or, where there is none, traced and written."""
    place = place_of(made_from, signature)
    if place is None:
        return jitted.lower(*args)
    try:
        program = read(place)
        if program is None:
            program = export.export(jitted)(*args)
            write(place, program)
        return staged(program.call, **options).lower(*args)
    except Exception:  # what cannot be exported or written is traced every time; what is wrong with it shows again
        return jitted.lower(*args)


def shapes(made_from: str, signature: Any) -> Any:
    """The shapes of what a program returns, where it is kept; else None."""
    place = place_of(made_from, signature)
    program = None if place is None else read(place)
    if program is None:
        return None
    return jax.tree.unflatten(program.out_tree, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.out_avals])


def place_of(made_from: str, signature: Any) -> Path | None:
    """A program's file, where programs are kept."""
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    return Path(folder) / f"majorant-{digest_of(made_from, signature)}" if folder else None


def digest_of(made_from: str, signature: Any) -> str:
    """The name of a program's file."""
    settings = sorted((name, repr(value)) for name, value in jax.config.values.items() if name not in OF_NO_MATTER)
    machine = (sys.version, platform.machine(), [(d.platform, d.device_kind) for d in jax.devices()])
    ours = sources(Path(__file__).parents[1])
    parts = (made_from, ours, versions(), settings, machine, os.environ.get("XLA_FLAGS"), signature)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@functools.cache
def versions() -> list[str]:
    """Those of the packages that programs are made with."""
    return [version(name) for name in PACKAGES]


@functools.cache
def sources(root: Path) -> str:
    """A digest of a package's own files."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def write(place: Path, program: export.Exported) -> None:
    """Keeps a program; of several processes the last one's file stays, whole."""
    names = sorted({name for tree in (program.in_tree, program.out_tree) for name in tuples_in(tree)})
    for name in names:
        known(name)
    blob = bytes(program.serialize())
    head = json.dumps({"tuples": names, "sum": hashlib.sha256(blob).hexdigest()})
    place.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=place.parent, prefix=".majorant-")
    with contextlib.ExitStack() as stack:
        stack.callback(Path(name).unlink, missing_ok=True)
        with os.fdopen(number, "wb") as file:
            file.write(head.encode() + b"\n" + blob)
        os.replace(name, place)


def read(place: Path) -> export.Exported | None:
    """A program that was kept; None where there is none, or none that can be used."""
    try:
        head, _, blob = place.read_bytes().partition(b"\n")
        about = json.loads(head)
        if about["sum"] != hashlib.sha256(blob).hexdigest():
            return None
        for name in about["tuples"]:
            known(name)
        return export.deserialize(bytearray(blob))
    except Exception:  # whatever is wrong with a file, the program can be traced
        return None


def tuples_in(tree: Any) -> list[str]:
    """The named tuples of a tree's structure, as module:name."""
    kind = (tree.node_data() or (None,))[0]
    own = [f"{kind.__module__}:{kind.__qualname__}"] if kind is not None and hasattr(kind, "_fields") else []
    return own + [name for child in tree.children() for name in tuples_in(child)]


@functools.cache
def known(name: str) -> None:
    """Tells JAX how a named tuple is called in files."""
    module, _, within = name.partition(":")
    if not name.startswith(TRUSTED):
        raise ValueError(f"{name} is none of ours")
    kind = functools.reduce(getattr, within.split("."), importlib.import_module(module))
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"{name} is no named tuple")
    export.register_namedtuple_serialization(kind, serialized_name=name)
