"""Who takes part: rows that are gathered from few chosen places are those that marks over all clients give."""

import jax
import numpy as np

import majorant as mj
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.engines.population import Bucket
from majorant.engines.resident import positions, rows_in
from majorant.engines.turns import those_active, those_chosen


def test_chosen_places_give_the_rows_of_every_bucket():
    """Clients 2 and 5 do not train, so that places and ids differ; a filler is never there."""
    buckets = [Bucket(np.array(ids), 1, 0, 1, 2) for ids in ([7, 1, 3, -1], [0, 6, 4, 8])]
    layout = mj.engines.programs.Layout((2, 2), (2, 2), (), 7, 9, 2, False)
    chosen = np.array([6, 0, 2, 5])  # places of clients 8, 0, 3 and 7
    marks = np.isin(np.arange(7), chosen)
    both = jit(lambda row, active: (those_chosen(chosen, row, 4), those_active(active)))
    expected = [[0, 2], [0, 3]]
    for bucket, position, row, rows in zip(
        buckets, positions(buckets), rows_in(buckets, layout, 1), expected, strict=True
    ):
        for turn in both(row, marks[position] & (bucket.ids >= 0)):
            assert np.asarray(turn.rows)[: int(turn.total)].tolist() == rows


def test_a_run_is_the_same_whether_participants_come_as_places_or_as_marks():
    """Of clients with private states, on two data sets side by side."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(9), rng.integers(5, 30, size=9))
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    data = FederatedData.from_arrays(x, (x[:, 0] > 0).astype(int), owner, split=(0.8, 0.0, 0.2)).with_unseen(0.2)
    algorithm, places = mj.pfedme(mj.models.linear(data)), mj.participation.uniform(0.5)
    options = {"rounds": 4, "evaluation": mj.Evaluation(every=4)}
    runs = [
        mj.simulate(algorithm, [data, data.redrawn(1)], participation=some, **options).last
        for some in (places, places._replace(chosen=None))
    ]
    jax.tree.map(np.testing.assert_array_equal, *((run.server, run.clients) for run in runs))
