"""What a sweep of trade-offs refuses before any training."""

from dataclasses import replace

import numpy as np
import pytest

import majorant as mj
from majorant.app import front
from majorant.app.front_config import make_front_config


def test_validation_samples_of_clients_that_do_not_train_are_none_to_choose_by(monkeypatch):
    data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    rows = np.arange(len(data.validation.y))[: data.validation.sizes[0]]
    alone = data.validation.pick(rows, np.array([len(rows), 0, 0, 0]))
    config = make_front_config(criteria=["squared-norm"], choose="validation")
    for unseen, refused in (([True, False, False, False], True), ([False] * 4, False)):
        given = replace(data, validation=alone, unseen=np.array(unseen))
        monkeypatch.setattr(front, "load_data", lambda config, given=given: (given, None))
        if refused:
            with pytest.raises(ValueError, match="no validation samples to choose by"):
                front.build_front(config)
        else:
            assert front.build_front(config).data is given
