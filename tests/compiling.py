"""How the tests compile: programs run on the smallest of problems, so that their time is the compiling.

LLVM does nothing, loops are emitted plainly, and one thread does all: less than half of the usual time. This file does
not import JAX, which takes its flags when it is imported.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from typing import Any

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def quickly(function: Any, **options: Any) -> Any:
    """``jax.jit``, with these options."""
    import jax

    return jax.jit(function, compiler_options=QUICK, **options)


kept = threading.local()


def keep_contexts() -> None:
    """Programs that a thread lowers share one MLIR context, until `forget_context`.

    JAX makes a new one, with all dialects of MLIR, for every program: of the time of a small one, a third. A program
    that is lowered while another one is has its own, as before: in the same it would become a part of the other.
    """
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)
    if make is None:  # another version of JAX, which has its own ways
        return

    def context() -> Any:
        if mlir.ir.Context.current is not None:
            return make()
        if not hasattr(kept, "context"):
            kept.context = make()
        return kept.context

    mlir.make_ir_context = context


def forget_context() -> None:
    """What the programs of this thread left in their context goes with the last of them."""
    vars(kept).clear()


def put_arrays() -> None:
    """NumPy's arrays are copied to the device without a program: `jnp.asarray` has one compiled for every shape."""
    import jax
    import numpy as np
    from jax._src.lax import lax

    primitive = getattr(lax, "stage_p", None)
    if primitive is None:  # another version of JAX
        return
    lift = primitive.impl
    primitive.def_impl(lambda value: jax.device_put(value.copy()) if isinstance(value, np.ndarray) else lift(value))


made: dict[str, Any] = {}  # programs, by what JAX would call their files


def share_programs() -> None:
    """A program that a test makes again is not compiled again, until `forget_programs`.

    JAX would keep it on disk, for other processes, too. Those seldom make the same one, unless it is one operation.
    """
    from jax._src import compilation_cache

    replaced = {
        "get_executable_and_time": lambda key, *how: (made.get(key), 0),
        "put_executable_and_time": lambda key, name, program, *how: made.setdefault(key, program),
    }
    if all(hasattr(compilation_cache, name) for name in replaced):  # another version of JAX has its own ways
        vars(compilation_cache).update(replaced)


def forget_programs() -> None:
    """Those that nobody else remembers give their memory back."""
    made.clear()
    alike.clear()


alike: dict[Any, Any] = {}  # federations, by what they are made of
LIBRARIES = ("majorant.", "optax.", "jax.")


def share_federations() -> None:
    """A federation that a test makes again is the first one, whose programs have been traced, until `forget_programs`.

    Algorithms are records of functions: those of two calls of `fedavg` with equal options are equal line by line, and
    in all that they refer to, but for Python they are as different as any two functions.
    """
    from majorant.exchange import federation as make

    @functools.wraps(make)
    def federation(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        return made if changed else alike.setdefault(likeness(made), made)

    for name, module in list(sys.modules.items()):
        if name.startswith("majorant.") and vars(module).get("federation") is make:
            module.federation = federation
    notice_changes()


changed: set[int] = set()  # what holds changes to modules, by pytest's `monkeypatch`, that have not been undone


def notice_changes() -> None:
    """While a test has changed the library, what it traces is its own: what others traced would hide the change."""
    import pytest

    def noticing(change: Any) -> Any:
        @functools.wraps(change)
        def noticed(self: Any, target: Any, *args: Any, **options: Any) -> None:
            if target is not os.environ:
                changed.add(id(self))
            return change(self, target, *args, **options)

        return noticed

    def undo(self: Any, original: Any = pytest.MonkeyPatch.undo) -> None:
        changed.discard(id(self))
        original(self)

    for name in ("setattr", "delattr", "setitem", "delitem"):
        setattr(pytest.MonkeyPatch, name, noticing(getattr(pytest.MonkeyPatch, name)))
    pytest.MonkeyPatch.undo = undo  # type: ignore[method-assign]


def likeness(value: Any) -> Any:
    """Equal for values that do the same: functions of libraries by their code and all that they refer to.

    What is not known to be a part of a record, such as a function of a test, is like nothing but itself.
    """
    return Likeness().of(value)


class Itself:
    """An object that is compared by what it is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Likeness:
    """Of one value: functions may refer to each other in circles."""

    def __init__(self) -> None:
        self.functions: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        import jax
        import numpy as np

        kind = type(value)
        if value is None or kind in (bool, int, str, bytes, type):
            return kind, value
        if kind in (float, complex):
            return kind, repr(value)
        if isinstance(value, tuple | list):
            return kind, *map(self.of, value)
        if kind is dict:
            return kind, *((self.of(key), self.of(each)) for key, each in value.items())
        if kind is functools.partial:
            return kind, self.of(value.func), self.of(value.args), self.of(value.keywords)
        if kind is types.FunctionType and f"{value.__module__}.".startswith(LIBRARIES):
            return self.of_function(value)
        if kind is types.MethodType:
            return kind, self.of(value.__func__), self.of(value.__self__)
        if kind is np.ndarray and value.dtype != object:
            return kind, value.shape, value.dtype, value.tobytes()
        if isinstance(value, jax.Array) and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return jax.Array, value.weak_type, self.of(np.asarray(value))
        if kind in (jax.tree_util.PyTreeDef, jax.ShapeDtypeStruct):
            return kind, value
        if kind.__name__ in ("PjitFunction", "_lru_cache_wrapper"):
            return kind, self.of(value.__wrapped__)
        return Itself(value)

    def of_function(self, function: types.FunctionType) -> Any:
        known = self.functions.get(id(function))
        if known is not None:
            return types.FunctionType, known
        self.functions[id(function)] = len(self.functions)
        cells = function.__closure__ or ()
        inside = [types.CellType if cell == types.CellType() else self.of(cell.cell_contents) for cell in cells]
        return function.__code__, self.of(function.__defaults__), self.of(function.__kwdefaults__), *inside
