"""How much memory a process of several takes for samples, by where these come from.

``arrays``: every process is given all samples in memory. ``function``: a function of the client reads them. ``files``:
CSV files, one for each client, and ``file``: all in one, with a column that names the client. Numbers are megabytes
that a process has grown by since it had trained something small, in the middle of training (what allocators keep in
reserve is given back first) and at most; those of one process with everything are beside those of each of two. Devices
are processors, so what is on devices is counted, too.
Run: python -m benchmarks.hosts_memory [KIND ...]
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS, ROWS, FEATURES = 16, 20_000, 50
KINDS = ("arrays", "function", "files", "file")
MB = 1e6


def read(client: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's samples."""
    rng = np.random.default_rng(client)
    return rng.normal(size=(ROWS, FEATURES)).round(3).astype(np.float32), rng.integers(0, 2, ROWS)


def write(folder: Path) -> None:
    """The same samples as CSV files."""
    import pyarrow as pa
    import pyarrow.csv as pc

    whole = []
    for client in range(CLIENTS):
        x, y = read(client)
        columns = {f"f{i}": x[:, i].astype(np.float64).round(3) for i in range(FEATURES)} | {"label": y}
        pc.write_csv(pa.table(columns), folder / f"c{client:02}.csv")
        whole.append(pa.table({"client": [f"c{client:02}"] * ROWS} | columns))
    mixed = pa.concat_tables(whole).take(np.random.default_rng(0).permutation(CLIENTS * ROWS))
    pc.write_csv(mixed, folder / "all.tsv")


def memory(what: str) -> float:
    """Megabytes that this process has (VmRSS) or had at most (VmHWM)."""
    import pyarrow

    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(what))


def measure(kind: str, folder: Path) -> dict[str, float]:
    """The growth of this process."""
    import majorant as mj
    from majorant.engines.hosts import several

    small = mj.data.synthetic_mixture(clients=4, dimension=FEATURES, seed=0)
    mj.simulate(mj.fedavg(mj.models.linear(small)), small, rounds=1)
    before, seen = memory("VmRSS"), []
    Path("/proc/self/clear_refs").write_text("5")  # the most from here on
    if kind == "arrays":
        parts = [read(client) for client in range(CLIENTS)]
        x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
        data = mj.data.FederatedData.from_arrays(x, y, np.repeat(np.arange(CLIENTS), ROWS))
        del parts, x, y
    elif kind == "function":
        data = mj.data.from_clients(read, [ROWS] * CLIENTS, features=FEATURES, classes=2)
    else:
        where, column = ("*.csv", None) if kind == "files" else ("all.tsv", "client")
        data, _ = mj.data.from_table(
            folder / where, client_column=column, label_column="label", in_memory=not several()
        )
    local = mj.local_sgd(0.1, epochs=1, batch_size=512)
    report = lambda records, snapshot: seen.append(memory("VmRSS"))
    mj.simulate(
        mj.fedavg(mj.models.linear(data), local=local), data, rounds=2, evaluation=mj.Evaluation(every=1, report=report)
    )
    return {"training": seen[-1] - before, "most": memory("VmHWM") - before}


def in_processes(kind: str, folder: Path, count: int) -> list[dict[str, float]]:
    """The same in so many processes."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.hosts_memory", kind, str(folder), address]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    started = [
        subprocess.Popen([*command, str(i), str(count)], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(count)
    ]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]


def main() -> None:
    """Prints a table."""
    if len(sys.argv) == 6:
        kind, folder, address, i, count = sys.argv[1:]
        from majorant.engines.hosts import join

        if int(count) > 1:
            join(address, int(i), int(count))
        print(json.dumps(measure(kind, Path(folder))))
        return
    samples = CLIENTS * ROWS * FEATURES * 4 / MB
    print(f"{samples:.0f} MB of samples; growth of each process in MB: in training, and at most")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for kind in sys.argv[1:] or KINDS:
            found: Any = {count: in_processes(kind, Path(folder), count) for count in (1, 2)}
            words = [" ".join(f"{p['training']:.0f}/{p['most']:.0f}" for p in found[count]) for count in (1, 2)]
            print(f"{kind:10} one: {words[0]:>10}   two: {words[1]}", flush=True)


if __name__ == "__main__":
    main()
