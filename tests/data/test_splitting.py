"""Splits by time, by groups and as told: every sample once, and nothing of the future or of a neighbour in training."""

import numpy as np
import pytest

from majorant.data.splitting import split_as_told, split_groups, split_in_order

NAMES = ["a", "b", "c"]
RNG = np.random.default_rng(0)
OWNER = RNG.permutation(np.repeat([0, 1, 2], [40, 25, 90]))
SPLIT = (0.6, 0.2, 0.2)


def check_partition(parts, owner=OWNER):
    assert np.sort(np.concatenate([rows for rows, _ in parts])).tolist() == list(range(len(owner)))
    for rows, offsets in parts:
        for client in range(len(offsets) - 1):
            assert set(owner[rows[offsets[client] : offsets[client + 1]]]) <= {client}


def test_training_samples_are_older_than_validation_and_test_samples():
    time = RNG.permutation(len(OWNER))
    parts = split_in_order(time, OWNER, NAMES, SPLIT)
    check_partition(parts)
    for client in range(3):
        times = [time[rows[offsets[client] : offsets[client + 1]]] for rows, offsets in parts]
        assert times[0].max() < times[1].min()
        assert times[1].max() < times[2].min()
    assert [np.diff(offsets).tolist() for _, offsets in parts] == [[24, 15, 54], [8, 5, 18], [8, 5, 18]]


def test_groups_stay_together():
    group = RNG.integers(12, size=len(OWNER))
    parts = split_groups(group, OWNER, NAMES, SPLIT, seed=3)
    check_partition(parts)
    part_of = np.empty(len(OWNER), int)
    for number, (rows, _) in enumerate(parts):
        part_of[rows] = number
    for client in range(3):
        for each in np.unique(group[client == OWNER]):
            assert len(set(part_of[(client == OWNER) & (group == each)])) == 1
        assert set(part_of[client == OWNER]) == {0, 1, 2}
    other = split_groups(group, OWNER, NAMES, SPLIT, seed=4)
    assert parts[0][0].tolist() != other[0][0].tolist()
    with pytest.raises(ValueError, match="client 'a' has 1 samples, too few"):
        split_groups(np.zeros(len(OWNER)), OWNER, NAMES, SPLIT, seed=0)


def test_parts_as_told():
    told = RNG.integers(3, size=len(OWNER))
    parts = split_as_told(told, OWNER, 3)
    check_partition(parts)
    for number, (rows, _) in enumerate(parts):
        assert (told[rows] == number).all()
