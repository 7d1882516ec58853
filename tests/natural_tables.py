"""Small made tables with the columns of the tables that go by a name: the data itself is never part of the project."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
from pathlib import Path

import numpy as np

from majorant._tables import TABLES

SIGNALS = [f"{kind}_{axis}" for kind in ("body", "gyro", "total") for axis in ("x", "y", "z", "norm")]
COLUMNS = {  # of each table; after a bar the number of categories, or what else the values are
    "school": [
        *(f"y{year}" for year in (1985, 1986, 1987)), "free_meals", "vr1_share", "boy", "girl", "band1", "band2",
        "band3", *(f"ethnic{i + 1}" for i in range(11)), "mixed", "boys", "girls", "maintained", "anglican",
        "catholic", "school|client", "score|whole",
    ],
    "computers": [*(f"x{i}" for i in range(13)), "person|client", "likes|whole"],
    "exam": ["school|client", "normexam", "schgend|3", "schavg", "vr|3", "intake|3", "standLRT", "sex|2", "type|2",
             "student|whole"],
    "hsb82": ["school|client", "minrty|2", "sx|2", "ses", "mAch", "meanses", "sector|2", "cses"],
    "contraception": ["woman|row", "district|client", "use|2", "livch|4", "age", "urban|2"],
    "eicu": [*(f"measure{i}" for i in range(24)), "hospital|client", "age", "gender|2", "unittype|8",
             *(f"measure{i}_known" for i in range(13)), "died|class"],
    "landmine": [*(f"x{i}" for i in range(9)), "field|client", "mine|class"],
    "tcga_brca": ["pid|row", *(f"code{i}" for i in range(39)), "E|class", "T|whole", "region|client", "fold|fold"],
    "wisdm": ["user|client", *(f"{axis}{i}" for axis in "XYZ" for i in range(10)),
              *(f"{axis}{what}" for what in ("AVG", "PEAK", "ABSOLDEV", "STANDDEV") for axis in "XYZ"), "RESULTANT",
              "activity|6"],
    "har": [*(f"{s}_{what}" for what in ("mean", "std", "min", "max", "step") for s in SIGNALS), "subject|client",
            "activity|6"],
    "parkinsons": ["subject|client", "age", "sex", "test_time", "motor_UPDRS", "total_UPDRS",
                   *(f"voice{i}" for i in range(16))],
    "star": ["id|unit", "sch|client", "gr|4", "cltype|3", "hdeg|5", "clad|7", "exp", "trace|3", "read|whole",
             "math|whole", "ses|2", "schtype|4", "sx|2", "eth|6", "birthq|21", "birthy", "yrs", "tch|whole"],
    "egsingle": ["schoolid|client", "childid|unit", "year", "grade", "math", "retained", "female|2", "black",
                 "hispanic", "size", "lowinc", "mobility"],
    "census2000": ["state|client", "puma|whole", "educ", "lweekinc", "exper", "expersq"],
}  # fmt: skip


def made(name: str, rows: int = 240, clients: int = 4) -> str:
    """The text of a table with so many rows; every unit has three rows of one client."""
    rng = np.random.default_rng(7)
    number = np.arange(rows)
    kinds = {
        "client": number // 3 % clients + 1,
        "unit": number // 3 + 1000,
        "row": number + 1,
        "class": (rng.random(rows) < 0.3).astype(int),
        "whole": rng.integers(1, 60, rows),
        "fold": np.where(rng.random(rows) < 0.3, "test", "train"),
    }
    names, columns = [], []
    for text in COLUMNS[name]:
        column, _, kind = text.partition("|")
        levels = np.char.add(f"{column}-", rng.permutation(number % int(kind)).astype(str)) if kind.isdigit() else None
        names.append(column)
        columns.append(levels if levels is not None else kinds.get(kind, rng.normal(size=rows).round(4)))
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    return "\n".join(lines) + "\n"


def put(monkeypatch, folder: Path, name: str, text: str | None = None) -> Path:
    """Puts a made table where it is looked for, with its checksum among the facts."""
    text = made(name) if text is None else text
    monkeypatch.setenv("MAJORANT_DATA", str(folder))
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    monkeypatch.setitem(TABLES, name, dataclasses.replace(TABLES[name], sha256=sha256))
    path = folder / "tables" / f"{name}.csv.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    return path
