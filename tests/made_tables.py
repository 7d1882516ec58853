"""Tables that tests write: visits to hospitals, and what is said about them."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

PARTS = ("train", "validation", "test")
REGRESSION = {"client_column": "hospital", "label_column": "row", "drop": ["outcome"], "scale_target": False}
CLASSES = {"client_column": "hospital", "label_column": "outcome", "drop": ["row"]}


def visits(n=120, seed=0):
    """Visits to four hospitals."""
    rng = np.random.default_rng(seed)
    return {
        "hospital": np.array(["north", "south", "west", "east"])[np.arange(n) % 4],
        "age": rng.integers(20, 90, n),
        "dose": 1e6 + rng.normal(size=n),
        "site": np.full(n, 0.1),
        "sex": np.array(["f", "m", "x"])[rng.integers(3, size=n)],
        "smoker": rng.random(n) < 0.5,
        "row": np.arange(n) + 0.5,  # a regression label that tells which row a sample was
        "outcome": np.array(["bad", "good"])[rng.integers(2, size=n)],
    }


def write(path, values):
    """A CSV or Parquet file."""
    table = pa.table(values)
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return path


def lines(path, header, rows, encoding="utf-8"):
    """A file of lines as they are."""
    path.write_bytes("\n".join([header, *rows, ""]).encode(encoding))
    return path
