"""Hospitals with a file each, and a study of theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

STUDY = """\
algorithm = "{algorithm}"
data = "{folder}/*.csv"
label_column = "outcome"
split_column = "part"
rounds = {rounds}
evaluate_every = {rounds}
seed = 1
{more}
[local]
lr = 0.3
batch_size = 8
[flower]
clients = {clients}
wait = 900.0
timeout = {timeout}
{flower}
"""


def write_silos(folder: Path, names: str = "ab", rows: int = 20) -> Path:
    """A CSV file for each hospital: the outcome follows age and dose, the other way round in every second one."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(names):
        rng = np.random.default_rng(place)
        lines = ["age,dose,ward,part,outcome"]
        for row in range(rows):
            age, dose = rng.normal(50, 10), rng.normal(3, 1)
            sick = ((age - 50) / 10 + (dose - 3)) * (1 if place % 2 else -1) > 0
            part = ("train", "train", "validation", "test")[row % 4]
            lines.append(f"{age:.2f},{dose:.3f},{'xyz'[row % (2 + place % 2)]},{part},{'sick' if sick else 'well'}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_study(
    path: Path, folder: Path, algorithm: str = "fedem:components=2", rounds: int = 2, **options: object
) -> Path:
    """The study of the hospitals in a folder."""
    values = {"more": "", "flower": "", "timeout": 900.0, "clients": len(list(folder.glob("*.csv")))}
    path.write_text(STUDY.format(algorithm=algorithm, folder=folder, rounds=rounds, **(values | options)))
    return path
