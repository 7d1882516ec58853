"""How the tests compile: programs run on the smallest of problems, so that their time is the compiling.

LLVM does nothing, loops are emitted plainly, and one thread does all: less than half of the usual time. This file does
not import JAX, which takes its flags when it is imported.
"""

from __future__ import annotations

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
