"""The one place where functions are handed to XLA, with options that make its code right.

jaxlib 0.10.2 on CPUs: a matrix product with a factor that is one number broadcast (weights that all start at 0), when
fused with a sum or maximum that follows, reads memory past that number: for 1,000 rows, ``(x @ jnp.zeros((784, 10)))
.max(axis=1)`` is not 0. It happens whether that number is a constant or an argument, so no program is safe by the way
it is made. Fusions of a product alone are right, and just as fast: only they are allowed here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

RIGHT: dict[str, Any] = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
ON_GPUS: dict[str, Any] = {"xla_gpu_enable_triton_gemm": False}
LOCATIONS, JAX_FRAMES = "jax_traceback_in_locations_limit", 100
Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def right_options() -> dict[str, Any]:
    """The options that every program needs here: none, where there is another backend or XLA does not know them."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0).lower().compile(RIGHT)
    except jax.errors.JaxRuntimeError:
        return {}
    return RIGHT


def jit(function: Function, *, compiler_options: Mapping[str, Any] | None = None, **options: Any) -> Function:
    """``jax.jit``, with the options that every program needs; inside another program, a part of that.

    >>> import jax.numpy as jnp
    >>> half = jit(lambda x: (x @ jnp.full((784, 10), 0.5)).max(axis=1))
    >>> bool(jnp.allclose(half(jnp.ones((1000, 784))), 392))
    True
    """
    part = jax.jit(function, **options)

    @functools.cache
    def whole() -> Callable[..., Any]:
        return jax.jit(function, compiler_options=right_options() | dict(compiler_options or {}), **options)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return (part if within_a_program(args, named) else whole())(*args, **named)

    return call  # type: ignore[return-value]


def within_a_program(*arguments: Any) -> bool:
    """Whether what is computed now is being traced, and not computed: JAX takes options for whole programs only."""
    traced = lambda value: isinstance(value, jax.core.Tracer)
    return any(map(traced, jax.tree.leaves(arguments))) or traced(jax.lax.full((), 0))


def staged(function: Callable[..., Any], **options: Any) -> Any:
    """``jax.jit`` of a function that is lowered and given to `compiled`, or exported, and never called."""
    return jax.jit(function, **options)


def leave_out_tracebacks() -> None:
    """Programs are lowered without the lines of Python that each operation comes from, unless the user asks for them.

    Nothing but profiles and dumps of programs shows these lines, and they take a sixth of the time of lowering.
    ``JAX_TRACEBACK_IN_LOCATIONS_LIMIT`` in the environment, or any value but JAX's own in its settings, stays.
    """
    if LOCATIONS.upper() in os.environ or getattr(jax.config, LOCATIONS, None) != JAX_FRAMES:
        return
    jax.config.update(LOCATIONS, 0)


def compiled(lowered: Any, wishes: Mapping[str, Any]) -> Any:
    """Compiles with the options that every program needs and, where XLA knows them, with ``wishes`` on a CPU.

    On a GPU XLA would write kernels of its own for each matrix product and time many forms of them: a MobileNet-v2's
    training step on an H200 takes 18 to 24 s to compile with that and 8 to 11 s without, and runs as fast.
    """
    backend, needed = jax.default_backend(), right_options()
    wishes = wishes if backend == "cpu" else ON_GPUS if backend == "gpu" else {}
    try:
        return lowered.compile({**wishes, **needed})
    except jax.errors.JaxRuntimeError as error:
        if "xla_" not in str(error):
            raise
    return lowered.compile(needed)
