"""Runs the tools one after the other on every piece of work; prints the table and writes JSON."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.clock import BEGAN, OUT
from benchmarks.peers.work import WORKS, Work, save

ROOT = Path(__file__).resolve().parents[2]


class Tool(NamedTuple):
    """A script of this folder, the environment that it needs, and the methods it has."""

    name: str
    script: str
    ours: bool = False  # runs in our environment
    methods: tuple[str, ...] = ("fedavg",)
    clone: str | None = None  # the option with the folder of its source, where it is no package
    rounds: int | None = None  # fewer rounds than the work has, for tools whose rounds take long


TOOLS = (
    Tool("Majorant", "ours", ours=True, methods=("fedavg", "fedem")),
    Tool("PyTorch loop", "torch_loop", methods=("fedavg", "fedem")),
    Tool("torch.func.vmap", "torch_vmap"),
    Tool("JAX loop", "jax_loop", ours=True),
    Tool("pfl-research", "pfl_research"),
    Tool("Flower simulation", "flower_simulation", rounds=3),
    Tool("PFLlib", "pfllib", clone="pfllib"),
    Tool("FL-bench", "fl_bench", methods=("fedavg", "fedem"), clone="fl_bench", rounds=5),
    Tool("FedEM, released code", "fedem_released", methods=("fedavg", "fedem"), clone="fedem", rounds=3),
)


def measured(tool: Tool, work: Work, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What a tool needed for a piece of work, or why it did not do it."""
    if work.method not in tool.methods:
        return {"not run": f"it has no {work.method}"}
    clone = getattr(options, tool.clone) if tool.clone else None
    if tool.clone and clone is None:
        return {"not run": f"no clone was named (--{tool.clone.replace('_', '-')})"}
    shorter = work._replace(rounds=min(work.rounds, tool.rounds or work.rounds))
    file, result = folder / "work.npz", folder / "result.json"
    save(shorter, file)
    result.unlink(missing_ok=True)
    python = sys.executable if tool.ours else options.python
    command = [python, "-m", f"benchmarks.peers.{tool.script}", str(file), *([str(clone)] if clone else [])]
    environment = os.environ | {BEGAN: str(time.time()), OUT: str(result), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    if tool.ours:
        environment |= {"MAJORANT_COMPILATION_CACHE": ""} if options.cold else {}
    load = os.getloadavg()[0]
    try:
        code, output = run(command, environment, folder, options.limit)
    except subprocess.TimeoutExpired:
        return {"not run": f"stopped after {options.limit:g} s"}
    if code or not result.exists():
        lines = [line for line in output.splitlines() if line.strip()]
        return {"not run": lines[-1][:200] if lines else f"exit status {code}"}
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


def table(work: Work, results: dict[str, dict[str, Any]]) -> str:
    """A Markdown table of one piece of work, with ratios to ours."""
    ours = results["Majorant"].get("round_s", float("nan"))
    lines = [
        f"### {work.name}",
        "",
        f"| tool | a round | against ours | first round after | to {work.target:.0%} | accuracy | memory | lines |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        if "not run" in found:
            lines.append(f"| {name} | not run: {found['not run'].replace('|', '/')} | | | | | | |")
            continue
        begin = found["startup_s"] + found["first_round_s"]
        reached = found["seconds_to_target"]
        cells = [
            for_people(found["round_s"]),
            times(found["round_s"] / ours),
            f"{begin:.1f} s",
            "–" if reached is None else f"{reached:.1f} s",
            f"{found['accuracy']:.1%} after {found['rounds']}",
            f"{found['peak_mb']:.0f} MB",
            str(found["lines"]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def times(ratio: float) -> str:
    """A ratio in three digits, or all of its whole ones."""
    return f"{ratio:,.0f} ×" if ratio >= 1000 else f"{ratio:.3g} ×"


def overview(works: dict[str, dict[str, dict[str, Any]]]) -> str:
    """How many times as long as ours a round takes, tool by work; a dash where a tool has no such method or model."""
    lines = [f"| a round, against ours | {' | '.join(works)} |", "|---" * (1 + len(works)) + "|"]
    for tool in dict.fromkeys(name for results in works.values() for name in results):
        cells = []
        for results in works.values():
            found, ours = results.get(tool, {}), results["Majorant"].get("round_s")
            ratio = found["round_s"] / ours if ours and "round_s" in found else None
            told = "–" if ratio is None else f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"
            cells.append(for_people(ours) if tool == "Majorant" and ours else told)
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def for_people(seconds: float) -> str:
    """A time in milliseconds or seconds."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def main() -> None:
    """Reads the options and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the peers' environment")
    parser.add_argument("--pfllib", help="the folder system of a clone of PFLlib")
    parser.add_argument("--fl-bench", help="a clone of FL-bench")
    parser.add_argument("--fedem", help="a clone of the FedEM authors' code")
    parser.add_argument("--work", nargs="*", help="parts of the names of works; all by default")
    parser.add_argument("--tools", nargs="*", help="scripts to run beside ours; all by default")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a tool has for a piece of work")
    parser.add_argument("--cold", action="store_true", help="ours compiles everything anew")
    parser.add_argument("--out", type=Path, default=Path("peers.json"))
    options = parser.parse_args()
    works = [w for w in WORKS if not options.work or any(part in w.name for part in options.work)]
    tools = [t for t in TOOLS if not options.tools or t.script in ("ours", *options.tools)]
    record: dict[str, Any] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "works": {}}
    with tempfile.TemporaryDirectory() as folder:
        for work in works:
            results = {}
            for tool in tools:
                results[tool.name] = measured(tool, work, options, Path(folder))
                record["works"][work.name] = results
                options.out.write_text(json.dumps(record, indent=1), encoding="utf-8")  # saved as it comes
            print(table(work, results), flush=True)
    print(overview(record["works"]))


if __name__ == "__main__":
    main()
