"""The command line lets Python search for garbage seldom while packages are loaded, and as usual when it is at work."""

import gc

import pytest

from majorant.cli._failures import at_work_in
from majorant.cli._garbage import SELDOM, search_seldom


@pytest.fixture(autouse=True)
def as_before():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_command_searches_seldom_until_it_is_at_work(tmp_path):
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    loaded = [[] for _ in range(1000)]
    search_seldom()
    assert gc.get_threshold() == (SELDOM, *before[1:])
    assert gc.isenabled()
    with at_work_in(tmp_path, lambda: ""):
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() > frozen + len(loaded)  # which are not searched again
        made = gc.get_freeze_count()
        with at_work_in(tmp_path, lambda: ""):  # nothing more is put aside
            assert gc.get_freeze_count() <= made


def test_who_has_chosen_how_often_python_searches_keeps_it(tmp_path):
    gc.set_threshold(900, 5, 5)
    frozen = gc.get_freeze_count()
    with at_work_in(tmp_path, lambda: ""):
        assert gc.get_threshold() == (900, 5, 5)
        assert gc.get_freeze_count() == frozen
