"""Several seeds of the FedEM paper's deep rows side by side on one GPU, a process each.

A network for images fills a GPU; an LSTM or a small CNN does not, and three processes take little longer than one. They
share the GPU fairly once NVIDIA's MPS is started (``nvidia-cuda-mps-control -d``). All options but ``--seeds`` are
those of `deep`. Every few seconds what all processes have saved so far is put into one file, ``results.json``; a table
of means over the seeds is printed at the end::

    python -m majorant_reproductions.fedem.deep_seeds FOLDER --seeds 0,1,2 --data mnist --methods fedem,fedavg
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from majorant_reproductions.fedem.deep import arguments, train_all
from majorant_reproductions.fedem.deep_tables import COLUMNS, rows_of, with_tuned

from majorant.app.files import atomic_write_text


def seeds_of(words: Sequence[str]) -> tuple[list[int], list[str]]:
    """The seeds that are asked for, and the other words of a command.

    >>> seeds_of(["folder", "--seeds", "0,2", "--tiny"])
    ([0, 2], ['folder', '--tiny'])
    """
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--seeds=") else [word])]
    if "--seeds" not in words[:-1]:
        raise SystemExit("deep_seeds needs --seeds, numbers with commas between them: --seeds 0,1,2")
    at = words.index("--seeds")
    try:
        seeds = [int(seed) for seed in words[at + 1].split(",")]
    except ValueError:
        raise SystemExit(f"--seeds are numbers with commas between them, not {words[at + 1]!r}") from None
    return seeds, [*words[:at], *words[at + 2 :]]


def train_seed(words: list[str], seed: int) -> None:
    """What one process does."""
    given = arguments(words)
    given.seed, given.folder = seed, given.folder / f"seed-{seed}"
    given.tell = lambda text: print(f"seed {seed}, {text}", flush=True)
    train_all(given)


def gathered(folders: Sequence[Path]) -> dict[str, Any]:
    """All results that have been saved, by seed and method."""
    return {
        folder.name: {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
        for folder in folders
    }


def main(words: Sequence[str], pause: float = 10.0) -> list[list[Any]]:
    """Trains all seeds; gives the rows of the table that it prints."""
    seeds, others = seeds_of(words)
    given = arguments(others)
    folder = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    folders = [folder / f"seed-{seed}" for seed in seeds]
    # each would take three quarters of the GPU's memory for itself
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / len(seeds):.3f}")
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=train_seed, args=(others, seed)) for seed in seeds]
    for process in running:
        process.start()
    busy = True
    while busy:
        time.sleep(pause)
        busy = any(process.is_alive() for process in running)
        atomic_write_text(folder / "results.json", json.dumps(gathered(folders)) + "\n")
    for seed, process in zip(seeds, running, strict=True):
        if process.exitcode:
            print(f"seed {seed}: its process ended with exit code {process.exitcode}")
    rows = rows_of(folders, with_tuned(given.methods.split(",")), before=given.name)
    for row in [COLUMNS, *rows]:
        print(" | ".join("" if cell is None else str(cell) for cell in row))
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
