"""One's own arrays as the data of a run: ``--data arrays:own.npz``, images or anything else that is no table.

The file is made with ``numpy.savez("own.npz", x=x, y=y, client=client)``: samples (bytes are pixels), their labels, and
the name or number of the client that each belongs to. An array ``part`` may say which samples are for training,
validation and test. Other arrays in the file are not read.
"""

from __future__ import annotations

from pathlib import Path

from majorant.app._samples import read_npz
from majorant.data.federated import FederatedData


def load_arrays(
    file: str,
    *,
    split: tuple[float, float, float] | None = None,
    task: str = "auto",
    unseen: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """The samples of an ``.npz`` file by client; without an array ``part`` each client's are split at random.

    ``split`` is 60/20/20 unless given.
    """
    path = Path(file)
    arrays = read_npz(path, ["x", "y", "client"])
    if split is not None and "part" in arrays:
        raise ValueError(f"{path} says by its array part what each sample is for: leave split out")
    try:
        data = FederatedData.from_arrays(
            arrays["x"],
            arrays["y"],
            arrays["client"],
            split=split or (0.6, 0.2, 0.2),
            part=arrays.get("part"),
            task=task,
            seed=seed,
            name=path.stem,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return data.with_unseen(unseen, seed=seed) if unseen else data
