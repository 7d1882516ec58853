"""Runs the tools one after the other on every piece of work; prints the tables and writes JSON.

With ``--device cuda`` the works are those for a GPU: the papers' CNN and MobileNet-v2 on images of 32×32×3.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.clock import BEGAN, OUT
from benchmarks.peers.page import parts, rewrite
from benchmarks.peers.work import DEEP, WORKS, Split, Work, samples, save, tiny

ROOT = Path(__file__).resolve().parents[2]


class Tool(NamedTuple):
    """A script of this folder, the environment that it needs, and the methods it has."""

    name: str
    script: str
    ours: bool = False  # runs in our environment
    methods: tuple[str, ...] = ("fedavg",)
    clone: str | None = None  # the option with the folder of its source, where it is no package
    rounds: int | None = None  # fewer rounds than the work has, for tools whose rounds take long
    argument: str | None = None  # for the script; it is told apart by it, as in ours-mixed
    devices: tuple[str, ...] = ("cpu", "cuda")

    @property
    def key(self) -> str:
        """What `--tools` calls it."""
        return f"{self.script}-{self.argument}" if self.argument else self.script


TOOLS = (
    Tool("Majorant", "ours", ours=True, methods=("fedavg", "fedem")),
    Tool("Majorant, mixed precision", "ours", ours=True, argument="mixed", devices=("cuda",)),
    Tool("PyTorch loop", "torch_loop", methods=("fedavg", "fedem")),
    Tool("torch.func.vmap", "torch_vmap"),
    Tool("JAX loop", "jax_loop", ours=True),
    Tool("FedJAX", "fed_jax", ours=True),
    Tool("pfl-research", "pfl_research"),
    Tool("Flower simulation", "flower_simulation", rounds=3),
    Tool("PFLlib", "pfllib", clone="pfllib"),
    Tool("FL-bench", "fl_bench", methods=("fedavg", "fedem"), clone="fl_bench", rounds=5),
    Tool("FedEM, released code", "fedem_released", methods=("fedavg", "fedem"), clone="fedem", rounds=3),
)


def measured(
    tool: Tool, work: Work, data: tuple[Split, Split], options: argparse.Namespace, folder: Path, limit: float
) -> dict[str, Any]:
    """What a tool needed for a piece of work, or why it did not do it."""
    if work.method not in tool.methods:
        return {"not run": f"it has no {work.method}"}
    clone = getattr(options, tool.clone) if tool.clone else None
    if tool.clone and clone is None:
        return {"not run": f"no clone was named (--{tool.clone.replace('_', '-')})"}
    caps = (work.rounds, tool.rounds, None if tool.ours else work.few, options.rounds)
    shorter = work._replace(rounds=min(filter(None, caps)))
    file, result = folder / "work.npz", folder / "result.json"
    save(shorter, data, file)
    result.unlink(missing_ok=True)
    python = sys.executable if tool.ours else options.python
    more = [*([str(Path(clone).resolve())] if clone else []), *([tool.argument] if tool.argument else [])]
    command = [python, "-m", f"benchmarks.peers.{tool.script}", str(file), *more]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(str(Path(place).resolve()) for place in [ROOT, ROOT / "src", *options.path, *given])
    environment = os.environ | {BEGAN: str(time.time()), OUT: str(result), "PYTHONPATH": path}
    if tool.ours:
        environment |= {"MAJORANT_COMPILATION_CACHE": ""} if options.cold else {}
    load = os.getloadavg()[0]
    try:
        code, output = run(command, environment, folder, limit)
    except subprocess.TimeoutExpired:
        return {"not run": f"stopped after {limit:.0f} s"}
    if code or not result.exists():
        lines = [line for line in output.splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)] or lines
        return {"not run": errors[-1][:200] if errors else f"exit status {code}"}
    return json.loads(result.read_text(encoding="utf-8")) | {"load": load, "lines": code_lines(tool.script)}


def run(command: list[str], environment: dict[str, str], folder: Path, limit: float) -> tuple[int, str]:
    """The exit status and the output of a process; what it has started ends with it."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True, **pipes) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def code_lines(script: str) -> int:
    """Lines of a tool's script that are neither blank, nor comments, nor documentation."""
    tree = ast.parse((Path(__file__).parent / f"{script}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            del body[0]
    return len(ast.unparse(tree).splitlines())


def main() -> None:
    """Reads the options and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the peers' environment")
    parser.add_argument("--pfllib", help="the folder system of a clone of PFLlib")
    parser.add_argument("--fl-bench", help="a clone of FL-bench")
    parser.add_argument("--fedem", help="a clone of the FedEM authors' code")
    parser.add_argument("--path", nargs="*", default=[], help="folders with packages for the tools")
    parser.add_argument("--work", nargs="*", help="parts of the names of works; all by default")
    parser.add_argument("--tools", nargs="*", help="scripts to run, in this order; all by default")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, help="at most so many")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a tool has for a piece of work")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="nothing is started after so many")
    parser.add_argument("--cold", action="store_true", help="ours compiles everything anew")
    parser.add_argument("--tiny", action="store_true", help="few clients and rounds, to try the tools out")
    parser.add_argument("--add", action="store_true", help="keeps what is in the file of results")
    parser.add_argument("--out", type=Path, default=Path("peers.json"))
    parser.add_argument("--page", type=Path, nargs="*", default=[], help="pages whose tables are replaced")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    works = [work._replace(device=options.device) for work in asked_for(options)]
    tools = [t for t in TOOLS if options.device in t.devices and (not options.tools or t.key in options.tools)]
    tools.sort(key=lambda tool: options.tools.index(tool.key) if options.tools else 0)
    kept = json.loads(options.out.read_text(encoding="utf-8")) if options.add and options.out.exists() else {}
    record: dict[str, Any] = {"machine": machine(options.device), "date": time.strftime("%Y-%m-%d")}
    record["works"] = kept.get("works", {})
    with tempfile.TemporaryDirectory() as folder:
        for work in works:
            results, data = record["works"].setdefault(work.name, {}), samples(work)
            for tool in tools:
                left = end - time.monotonic()
                if left <= 0:
                    results.setdefault(tool.name, {"not run": "no time was left"})
                    continue
                results[tool.name] = measured(tool, work, data, options, Path(folder), min(options.limit, left))
                options.out.write_text(json.dumps(record, indent=1), encoding="utf-8")  # saved as it comes
                print(f"{work.name}: {tool.name}: {json.dumps(results[tool.name])}", flush=True)
    found = parts([record])
    print("\n".join(["", *found.values()]))
    rewrite(options.page, found)


def asked_for(options: argparse.Namespace) -> list[Work]:
    """The works of a device, or those that are named, of any."""
    known = WORKS + DEEP if options.work else DEEP if options.device == "cuda" else WORKS
    named = [work for work in known if not options.work or any(part in work.name for part in options.work)]
    return [tiny(work) for work in named] if options.tiny else named


def machine(device: str) -> str:
    """What it runs on."""
    if device == "cpu":
        return f"{platform.machine()}, {os.cpu_count()} cores"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "a GPU"


if __name__ == "__main__":
    main()
