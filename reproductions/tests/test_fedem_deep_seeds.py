"""Several seeds of the deep rows side by side."""

import json

import pytest
from majorant_reproductions.fedem import deep_seeds


def test_seeds_side_by_side_are_put_together(tmp_path, capfd):
    words = [str(tmp_path), "--tiny", "--rounds=1", "--methods=local,nothing", "--precision=single", "--name=own-"]
    (broken, row) = sorted(deep_seeds.main([*words, "--seeds=0,4"], pause=0.5), key=lambda row: row[0] == "local")
    found = json.loads((tmp_path / "results.json").read_text())
    assert set(found) == {"seed-0", "seed-4"}
    ends = [found[seed]["own-local"]["history"][-1]["test_accuracy"] for seed in ("seed-0", "seed-4")]
    assert [found[seed]["own-local"]["settings"]["seed"] for seed in found] == ["0", "4"]
    assert row[3] == ", ".join(f"{end:.1f}" for end in ends)
    assert row[1].startswith(f"{sum(ends) / 2:.1f} ± ")
    assert broken[0] == "nothing"
    assert "AttributeError" in broken[3]
    assert "method | ours | train | each seed" in capfd.readouterr().out


@pytest.mark.parametrize("words", [["folder"], ["folder", "--seeds"], ["folder", "--seeds", "a,b"], ["--seeds=1-3"]])
def test_seeds_that_are_none_are_refused(words):
    with pytest.raises(SystemExit, match="numbers with commas between them"):
        deep_seeds.main(words)
