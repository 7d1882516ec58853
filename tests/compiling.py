"""`quickly`: ``jax.jit`` for programs of tests whose time is the compiling, a third of it without optimisation.

They run on the smallest of problems, so that fast code is of no use: LLVM does nothing, and loops are emitted plainly.
"""

from __future__ import annotations

from functools import partial

import jax

quickly = partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_use_fusion_emitters": False,
    },
)
