"""A personal model as an ONNX file: the program that JAX traces of its predictions, operation by operation.

Every method and every model goes the same way, because what is translated is the prediction itself. Parameters become
constants of the graph, and operations on constants alone are carried out now. Operations that stand for more than an
elementwise function are in `RULES`; one that is not known is named in a complaint.

The graph takes ``x`` with any number of samples. For a table these are the features of its encoding in double
precision, numbers and parts of dates in original units and NaN where one is missing; else samples as training sees
them. It gives ``probabilities``, or ``prediction`` in original units. Names of features and classes, and the encoding,
are in the file's metadata.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend.core import DropVar

from majorant._extras import require
from majorant.app.export.coefficients import feature_names, units
from majorant.app.export.model import outputs
from majorant.app.files import strict_json
from majorant.engines.deployment import PersonalModel, precision_of

OPSET, IR_VERSION = 18, 10  # which every runtime of the last years reads
END = np.iinfo(np.int64).max
ELEMENTWISE = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "max": "Max", "min": "Min", "logistic": "Sigmoid", "tanh": "Tanh", "abs": "Abs", "sign": "Sign", "erf": "Erf",
    "pow": "Pow", "floor": "Floor", "ceil": "Ceil", "sin": "Sin", "cos": "Cos", "gt": "Greater", "lt": "Less",
    "ge": "GreaterOrEqual", "le": "LessOrEqual", "eq": "Equal", "and": "And", "or": "Or", "not": "Not",
    "stop_gradient": "Identity", "copy": "Identity", "copy_p": "Identity",
}  # fmt: skip
REDUCTIONS = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}


class Graph:
    """The nodes of a graph that is being made; values are names of nodes' results, or constants."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.named: dict[int, tuple[Any, str]] = {}  # a value, which is kept so that no other has its id, and its name

    def constant(self, value: Any) -> str:
        """The name of a constant; there is one of it, however often it is used, as a loop's weights are."""
        if id(value) not in self.named:
            name = f"c{len(self.constants)}"
            self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value, order="C"), name))
            self.named[id(value)] = value, name
        return self.named[id(value)][1]

    def node(self, kind: str, *inputs: Any, **options: Any) -> str:
        """The name of what an operation gives for names, or for constants."""
        name = f"v{len(self.nodes)}"
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, names, [name], **options))
        return name

    def shape(self, sizes: Sequence[Any]) -> Any:
        """A shape as a value: one that depends on the number of samples is computed in the graph."""
        if all(is_number(size) for size in sizes):
            return np.array(sizes, np.int64)
        return self.node("Concat", *map(self.size, sizes), axis=0)

    def size(self, size: Any) -> Any:
        """One size, ``a · n + b`` where n is the number of samples."""
        if is_number(size):
            return np.array([size], np.int64)
        at = [int(size._evaluate({"n": n})) for n in (1, 2, 3)]
        if at[2] - at[1] != at[1] - at[0]:
            raise ValueError(f"a shape depends on the number of samples as {size}, which ONNX files cannot say")
        count = self.node("Slice", self.node("Shape", "x"), np.array([0]), np.array([1]))
        scaled = self.node("Mul", count, np.array([at[1] - at[0]]))
        return self.node("Add", scaled, np.array([2 * at[0] - at[1]]))


def is_number(size: Any) -> bool:
    """Whether a size does not depend on the number of samples."""
    return isinstance(size, int | np.integer)


def onnx_model(model: PersonalModel) -> bytes:
    """The content of the file."""
    purpose = "ONNX files need the package onnx"
    onnx = require("onnx", "export", purpose)
    require("onnx.helper", "export", purpose)
    require("onnx.numpy_helper", "export", purpose)
    graph = Graph(onnx)
    with precision_of(model.model):
        dtype = jnp.result_type(float)
        (n,) = export.symbolic_shape("n")
        traced = jax.make_jaxpr(lambda x: outputs(model, x))(jax.ShapeDtypeStruct((n, *model.features), dtype))
        given = np.dtype(np.float64) if model.encoding is not None else np.dtype(dtype)
        x = standardised(graph, model, np.dtype(dtype)) if model.encoding is not None else "x"
        (result,) = translate(graph, traced.jaxpr, traced.consts, [x])
    name = "probabilities" if model.classes else "prediction"
    graph.nodes.append(onnx.helper.make_node("Identity", [result], [name]))
    kind = lambda dtype: onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = ["n", len(model.classes)] if model.classes else ["n"]
    made = onnx.helper.make_graph(
        graph.nodes,
        "majorant",
        [onnx.helper.make_tensor_value_info("x", kind(given), ["n", *model.features])],
        [onnx.helper.make_tensor_value_info(name, kind(dtype), shape)],
        graph.constants,
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    file = onnx.helper.make_model(made, opset_imports=opsets, producer_name="majorant", ir_version=IR_VERSION)
    about: dict[str, Any] = {
        "features": feature_names(model),
        "classes": list(model.classes),
        "method": model.algorithm.name,
    }
    if model.encoding is not None:
        about["encoding"] = model.encoding.to_dict()
    onnx.helper.set_model_props(file, {key: strict_json(value) for key, value in about.items()})
    onnx.checker.check_model(file)
    return file.SerializeToString()


def standardised(graph: Graph, model: PersonalModel, dtype: np.dtype) -> str:
    """Features in original units as training sees them; a missing one becomes 0."""
    means, scales = units(model.encoding, len(feature_names(model)))
    ratio = graph.node("Div", graph.node("Sub", "x", means), np.where(scales > 0, scales, 1.0))
    gone = graph.node("Or", graph.node("IsNaN", "x"), (scales == 0)[None])
    known = graph.node("Where", gone, np.zeros(()), ratio)
    return graph.node("Cast", known, to=int(graph.onnx.helper.np_dtype_to_tensor_dtype(dtype)))


def translate(graph: Graph, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The values that a traced program gives for some values."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))
    value = lambda atom: np.asarray(atom.val) if hasattr(atom, "val") else known[atom]
    for equation in jaxpr.eqns:
        results = apply(graph, equation, [value(atom) for atom in equation.invars])
        known |= dict(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def apply(graph: Graph, equation: Any, values: list[Any]) -> list[Any]:
    """The results of one operation."""
    name, params = equation.primitive.name, equation.params
    inner = params.get("jaxpr") or params.get("call_jaxpr")
    if inner is not None and name != "scan":
        closed = hasattr(inner, "consts")
        return translate(graph, inner.jaxpr if closed else inner, inner.consts if closed else (), values)
    out = equation.outvars[0].aval
    known = not any(isinstance(v, str) for v in values) and name != "dim_as_value"  # the number of samples
    if known and all(map(is_number, out.shape)):
        found = equation.primitive.bind(*map(jax.device_put, values), **params)  # `jnp.asarray` would compile
        return [np.asarray(each) for each in (found if equation.primitive.multiple_results else [found])]
    if name in ELEMENTWISE:
        return [graph.node(ELEMENTWISE[name], *values)]
    if name in REDUCTIONS:
        axes = np.array(params["axes"], np.int64)
        return [graph.node(REDUCTIONS[name], values[0], axes, keepdims=0)]
    if name not in RULES:
        raise ValueError(f"{name} has no counterpart in ONNX files here: export to .stablehlo")
    found = RULES[name](graph, values, params, equation)
    return found if isinstance(found, list) else [found]


Rule = Callable[[Graph, list[Any], dict[str, Any], Any], Any]


def dot_general(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """A product of tensors, summed over some axes of both: Einstein's sum."""
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    letters = iter(string.ascii_letters)
    first = [next(letters) for _ in equation.invars[0].aval.shape]
    second = [next(letters) for _ in equation.invars[1].aval.shape]
    for mine, theirs in [*zip(left, right, strict=True), *zip(left_batch, right_batch, strict=True)]:
        second[theirs] = first[mine]
    batch = [first[i] for i in left_batch]
    free = [a for i, a in enumerate(first) if i not in (*left, *left_batch)]
    free += [a for i, a in enumerate(second) if i not in (*right, *right_batch)]
    text = f"{''.join(first)},{''.join(second)}->{''.join(batch + free)}"
    return graph.node("Einsum", *values, equation=text)


def reshape(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """Other sizes; the one that depends on the number of samples is left to the runtime."""
    sizes = equation.outvars[0].aval.shape
    free = [not is_number(size) for size in sizes]
    wanted: Any = graph.shape(sizes)
    if sum(free) == 1:
        wanted = np.array([-1 if open_ended else size for open_ended, size in zip(free, sizes, strict=True)], np.int64)
    return graph.node("Reshape", values[0], wanted)


def broadcast_in_dim(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """Axes of size 1 where there were none, then repetition along them."""
    sizes, kept = equation.outvars[0].aval.shape, [int(axis) for axis in params["broadcast_dimensions"]]
    added = np.array([axis for axis in range(len(sizes)) if axis not in kept], np.int64)
    value = graph.node("Unsqueeze", values[0], added) if len(added) else values[0]
    before = dict(zip(kept, equation.invars[0].aval.shape, strict=True))
    same = all(before.get(axis, 1) == size for axis, size in enumerate(sizes))
    return value if same else graph.node("Expand", value, graph.shape(sizes))


def part(
    graph: Graph, value: Any, sizes: Sequence[Any], starts: Sequence[int], ends: Sequence[Any], steps: Sequence[int]
) -> Any:
    """A slice of an array of some sizes; of ends that depend on the number of samples, those of the axes."""
    if any(not is_number(end) and end != size for end, size in zip(ends, sizes, strict=True)):
        raise ValueError("a slice up to some sample has no counterpart in ONNX files here: export to .stablehlo")
    ends = [int(end) if is_number(end) else END for end in ends]
    numbers = [np.array(each, np.int64) for each in (starts, ends, range(len(ends)), steps)]
    return graph.node("Slice", value, *numbers)


def slice_(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """A slice whose place is known."""
    sizes, ends = equation.invars[0].aval.shape, params["limit_indices"]
    return part(graph, values[0], sizes, params["start_indices"], ends, params["strides"] or [1] * len(ends))


def gather(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """Of gathers those in constant places: JAX traces ``x[:, 2:5]`` and ``x[:, ::2, 1::2]`` so."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    place = values[1]
    if not isinstance(place, str) and place.ndim > 1 and not numbers.operand_batching_dims:
        return entries(graph, values[0], place, equation.invars[0].aval.shape, numbers, sizes)
    if isinstance(place, str) or place.ndim != 1 or numbers.operand_batching_dims:
        raise ValueError("gather by computed places has no counterpart in ONNX files here: export to .stablehlo")
    starts = [0] * len(sizes)
    for axis, start in zip(numbers.start_index_map, place.tolist(), strict=True):
        starts[int(axis)] = start
    ends = [start + size if is_number(size) else size for start, size in zip(starts, sizes, strict=True)]
    found = part(graph, values[0], equation.invars[0].aval.shape, starts, ends, [1] * len(sizes))
    gone = np.array([int(axis) for axis in numbers.collapsed_slice_dims], np.int64)
    return graph.node("Squeeze", found, gone) if len(gone) else found


def entries(graph: Graph, value: Any, place: np.ndarray, before: Sequence[Any], numbers: Any, sizes: Any) -> Any:
    """Entries of some axes, of each axis its own, whatever those of the others are."""
    axes = [int(axis) for axis in numbers.start_index_map]
    others = tuple(i for i in range(len(sizes)) if i not in axes)
    along = [place[(0,) * i + (slice(None),) + (0,) * (len(axes) - i - 1) + (i,)] for i in range(place.ndim - 1)]
    if not (
        place.ndim - 1 == len(axes)
        and axes == [int(axis) for axis in numbers.collapsed_slice_dims]
        and others == tuple(numbers.offset_dims)
        and all(sizes[i] == before[i] for i in others)
        and np.array_equal(place, np.stack(np.meshgrid(*along, indexing="ij"), axis=-1))
    ):
        raise ValueError("gather by computed places has no counterpart in ONNX files here: export to .stablehlo")
    for axis, own in zip(axes, along, strict=True):
        value = graph.node("Gather", value, own.astype(np.int64), axis=axis)
    return value


def split(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> list[Any]:
    """Pieces along an axis."""
    sizes = equation.invars[0].aval.shape
    ends = np.cumsum(params["sizes"])
    pieces = []
    for start, end in zip(ends - params["sizes"], ends, strict=True):
        along = lambda other, own: [own if i == params["axis"] else each for i, each in enumerate(other)]
        pieces.append(
            part(graph, values[0], sizes, along([0] * len(sizes), start), along(sizes, end), [1] * len(sizes))
        )
    return pieces


def scan(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> list[Any]:
    """A loop whose length is known: its steps one after the other."""
    constants, carried = params["num_consts"], params["num_carry"]
    fixed, carry, each = values[:constants], values[constants:][:carried], values[constants + carried :]
    steps, length = params["jaxpr"], range(params["length"])
    made: dict[int, list[Any]] = {}
    for t in reversed(length) if params["reverse"] else length:
        now = [graph.node("Gather", v, np.array(t), axis=0) if isinstance(v, str) else v[t] for v in each]
        found = translate(graph, steps.jaxpr, steps.consts, [*fixed, *carry, *now])
        carry, made[t] = found[:carried], found[carried:]
    rows = lambda place: [graph.node("Unsqueeze", made[t][place], np.array([0])) for t in length]
    used = [i for i, v in enumerate(equation.outvars[carried:]) if not isinstance(v, DropVar)]
    stacked = [graph.node("Concat", *rows(i), axis=0) if i in used else None for i in range(len(made[0]))]
    return [*carry, *stacked]


def pad(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """A constant around."""
    low, high, inside = zip(*params["padding_config"], strict=True)
    if any(inside):
        raise ValueError("padding between entries has no counterpart in ONNX files here: export to .stablehlo")
    return graph.node("Pad", values[0], np.array([*low, *high], np.int64), values[1])


def select(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """The second of two where a condition holds, the first elsewhere."""
    if len(values) != 3:
        raise ValueError("a choice among more than two has no counterpart in ONNX files here: export to .stablehlo")
    return graph.node("Where", values[0], values[2], values[1])


def convert(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """Another type."""
    kind = graph.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(params["new_dtype"]))
    return graph.node("Cast", values[0], to=int(kind))


def power(graph: Graph, values: list[Any], params: dict[str, Any], equation: Any) -> Any:
    """A whole power."""
    return graph.node("Pow", values[0], np.asarray(params["y"], equation.invars[0].aval.dtype))


RULES: dict[str, Rule] = {
    "dot_general": dot_general,
    "reshape": reshape,
    "broadcast_in_dim": broadcast_in_dim,
    "slice": slice_,
    "gather": gather,
    "split": split,
    "scan": scan,
    "pad": pad,
    "select_n": select,
    "convert_element_type": convert,
    "integer_pow": power,
    "square": lambda graph, values, params, equation: graph.node("Mul", values[0], values[0]),
    "log1p": lambda graph, values, params, equation: graph.node(
        "Log", graph.node("Add", values[0], np.ones((), equation.invars[0].aval.dtype))
    ),
    "is_finite": lambda graph, values, params, equation: graph.node(
        "Not", graph.node("Or", graph.node("IsInf", values[0]), graph.node("IsNaN", values[0]))
    ),
    "ne": lambda graph, values, params, equation: graph.node("Not", graph.node("Equal", *values)),
    "rsqrt": lambda graph, values, params, equation: graph.node("Reciprocal", graph.node("Sqrt", values[0])),
    "transpose": lambda graph, values, params, equation: graph.node(
        "Transpose", values[0], perm=[int(axis) for axis in params["permutation"]]
    ),
    "squeeze": lambda graph, values, params, equation: graph.node(
        "Squeeze", values[0], np.array([int(axis) for axis in params["dimensions"]], np.int64)
    ),
    "concatenate": lambda graph, values, params, equation: graph.node("Concat", *values, axis=params["dimension"]),
}
