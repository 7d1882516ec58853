"""How the tests compile: programs run on the smallest of problems, so that their time is the compiling.

LLVM does nothing, loops are emitted plainly, and one thread does all: less than half of the usual time. This file does
not import JAX, which takes its flags when it is imported.
"""

from __future__ import annotations

import threading
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
