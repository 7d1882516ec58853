"""A configuration as data, model and algorithm: what does not fit together is refused before anything is computed."""

import pytest

from majorant.app.build import build
from majorant.app.config import make_config


@pytest.mark.parametrize("algorithm", ["mocha:clients=0", "mocha:clients=2", "clustered:clients=7"])
def test_a_number_of_clients_that_is_not_the_datas_is_refused(algorithm):
    """A method that holds something for each client would fail in the middle of its first round."""
    config = make_config({}, algorithm=algorithm, data="synthetic:clients=3,dimension=2")
    with pytest.raises(ValueError, match=r"the data has 3 clients, not [027]\. Leave clients out"):
        build(config)
