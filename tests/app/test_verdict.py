"""The verdict on made-up predictions, where it is known what it must say."""

from dataclasses import replace

import numpy as np
import pytest

from majorant.app.evidence import TRIVIAL, Comparison, Rows, refuse_other_data
from majorant.app.verdict import judged
from majorant.data import synthetic_mixture
from majorant.metrics.headline import Headline
from majorant.metrics.intervals import Design

ACCURACY, RMSE = Headline("accuracy", "it is a test"), Headline("rmse", "it is a test")


def comparison(rates, sizes, *, seed=0, splits=1, diverged=None, validation=True, small=(), trivial=0.5):
    """Methods that are right on each client's rows at the given rates; the first is training alone."""
    rng = np.random.default_rng(seed)
    sizes, names = np.array(sizes), tuple(f"h{c}" for c in range(len(sizes)))

    def rows(first):
        owner = np.repeat(np.arange(len(sizes)), sizes)
        y = rng.integers(2, size=len(owner))
        luck = rng.random(len(owner))  # the same for all methods: pairs are alike
        found = Rows(y, owner, first + np.arange(len(owner)))
        for name, rate in {**rates, TRIVIAL: trivial}.items():
            right = luck < np.broadcast_to(rate, len(sizes))[owner]
            found.predicted[name] = np.eye(2)[np.where(right, y, 1 - y)] * 0.8 + 0.1
        return found

    total = int(sizes.sum())
    none = np.zeros(len(sizes), bool)
    broken = {name: np.isin(names, (diverged or {}).get(name, [])) for name in rates}
    return Comparison(
        names, 2, {"train": 3 * sizes, "test": sizes}, ACCURACY, Design(0.6, 0.2, redrawn=splits > 1),
        [rows(total * s) for s in range(splits)], [rows(0) for _ in range(splits)] if validation else [],
        {name: broken.get(name, none) for name in rates}, dict.fromkeys(rates, 1.5), dict.fromkeys(rates, 0.1),
    )  # fmt: skip


def test_a_clear_gain_is_worth_it_and_clients_are_named():
    """The last client has five test rows, all of which fedem wins: too few all the same."""
    rates = {"local": [0.6, 0.9, 0.6, 0.0], "fedavg": [0.9, 0.6, 0.6, 0.9], "fedem": [0.95, 0.7, 0.6, 1.0]}
    found = judged(comparison(rates, [200, 200, 200, 5]))
    verdict = found["verdict"]
    assert (verdict["best"], verdict["over"], verdict["worth_it"]) == ("fedem", "local", "yes")
    assert verdict["gain_clients"] == ["h0"]
    assert verdict["lose_clients"] == ["h1"]
    assert verdict["small_clients"] == ["h3"]
    assert verdict["unclear_clients"] == 2
    enough = [each["scores"]["local"] for each in found["clients"][:3]]
    assert found["methods"]["local"]["bottom_decile"] == min(enough)  # not the 0 of the client with five rows
    assert verdict["interval"][0] < verdict["gain"] < verdict["interval"][1]
    gain = found["methods"]["fedem"]["mean"] - found["methods"]["local"]["mean"]
    assert verdict["gain"] == pytest.approx(gain)
    assert found["clients"][3]["interval"] is None
    assert [each["verdict"] for each in found["clients"]] == ["gains", "loses", "unclear", "unclear"]
    text = " ".join(verdict["sentences"])
    assert verdict["sentences"][0].startswith("Collaboration is worth it here: with fedem")
    for words in (f"{100 * gain:.1f} points better", "(h0)", "(h1)", "(h3)", "majority class", "1.5 MB", "375 kB"):
        assert words in text
    for client in found["clients"]:  # an interval without 0 just where a client gains or loses
        if client["interval"] is not None:
            assert (client["verdict"] != "unclear") == (
                min(map(abs, client["interval"])) > 0 and np.prod(client["interval"]) > 0
            )


def test_one_row_of_each_rare_class_proves_no_gain():
    """Two rows of forty-two make the whole difference of the balanced accuracies."""
    about = comparison({"local": 1.0, "fedavg": 1.0}, [42])
    for rows in (*about.test, *about.validation):
        rows.y = np.r_[np.zeros(40, int), 1, 2]
        rows.predicted = {name: np.eye(3)[rows.y] for name in rows.predicted}
        rows.predicted["local"] = np.eye(3)[np.zeros(42, int)]
    found = judged(replace(about, classes=3, headline=Headline("balanced_accuracy", "it is a test")))
    assert found["verdict"]["gain"] == pytest.approx(2 / 3)
    assert found["verdict"]["interval"][0] < 0
    assert found["clients"][0]["verdict"] == "unclear"


def test_harm_and_noise_are_not_worth_it():
    harm = judged(comparison({"local": 0.9, "fedavg": 0.7}, [300, 300]))["verdict"]
    assert harm["worth_it"] == "no"
    assert harm["gain"] < 0
    assert "not worth it" in harm["sentences"][0]
    noise = judged(comparison({"local": 0.8, "fedavg": 0.8}, [50, 50]))["verdict"]
    assert noise["worth_it"] == "unclear"
    assert noise["gain"] == 0
    assert "the same as training alone" in noise["sentences"][0]
    assert noise["interval"][0] < 0 < noise["interval"][1]


def test_training_alone_that_overfits_is_told():
    rates = {"local": 0.6, "fedavg": 0.9}
    for trivial, told in ((0.8, True), (0.61, False), (0.5, False)):  # beyond noise, within it, and not at all
        found = judged(comparison(rates, [300, 300], trivial=trivial))["verdict"]
        assert found["worth_it"] == "yes"
        assert found["trivial"]["beats_alone"] is told
        assert any("Training alone (local) is worse than the trivial" in each for each in found["sentences"]) is told


def test_nothing_that_beats_the_trivial_model_is_worth_it():
    found = judged(comparison({"local": 0.6, "fedavg": 0.8}, [300, 300], trivial=0.8))["verdict"]
    assert found["interval"][0] > 0
    assert found["worth_it"] == "unclear"
    assert not found["trivial"]["beaten"]
    assert any("Nothing beats the trivial model" in each for each in found["sentences"])


def test_a_method_that_diverged_cannot_win_and_its_clients_are_named():
    rates = {"local": 0.6, "fedavg": 0.7, "fedem": 0.99}
    found = judged(comparison(rates, [200, 200, 50], diverged={"fedem": ["h1"], "local": ["h2"]}))
    verdict = found["verdict"]
    assert verdict["best"] == "fedavg"
    assert verdict["diverged"] == {"local": ["h2"], "fedem": ["h1"]}
    assert found["methods"]["fedem"]["mean"] is None
    assert found["clients"][2]["verdict"] == "diverged"
    assert found["clients"][2]["gain"] is None
    assert any("fedem diverged on 1 client (h1) and cannot win" in each for each in verdict["sentences"])
    everything = judged(comparison({"local": 0.6, "fedavg": 0.9}, [50], diverged={"fedavg": ["h0"]}))["verdict"]
    assert everything["best"] is None
    assert everything["worth_it"] == "unclear"
    nobody_alone = judged(comparison({"local": 0.6, "fedavg": 0.9}, [50], diverged={"local": ["h0"]}))["verdict"]
    assert (nobody_alone["best"], nobody_alone["gain"], nobody_alone["worth_it"]) == ("fedavg", None, "unclear")
    assert "training alone diverged on every client" in nobody_alone["sentences"][0]


def test_the_best_is_chosen_where_it_is_not_judged():
    """Twenty methods that are all alike: chosen on test rows the best of them looks better than it is."""
    rates = {"local": 0.7} | {f"m{i:02}": 0.7 for i in range(20)}
    tilted = lambda **options: [shuffled(comparison(rates, [60, 60], seed=seed, **options), seed) for seed in range(15)]
    fair = np.mean([judged(each)["verdict"]["gain"] for each in tilted()])
    assert abs(fair) < 0.03
    without = [judged(each)["verdict"] for each in tilted(validation=False)]
    assert np.mean([each["gain"] for each in without]) > 0.05
    assert np.mean([each["interval"][0] > 0 for each in without]) < 0.1  # and its interval is wider for it
    assert "chosen on the test rows" in without[0]["sentences"][-1]


def shuffled(about, seed):
    """Each method right on other rows."""
    rng = np.random.default_rng(seed)
    for rows in (*about.test, *about.validation):
        for name in rows.predicted:
            right = rng.random(len(rows.y)) < 0.7
            rows.predicted[name] = np.eye(2)[np.where(right, rows.y, 1 - rows.y)] * 0.8 + 0.1
    return about


def test_gaps_between_groups():
    about = comparison({"local": 0.7, "fedavg": 0.8}, [100, 100])
    sex = np.array(["f", "m"])[np.arange(200) % 2]
    rows = about.test[0]
    rows.predicted["fedavg"][1::2] = np.eye(2)[1 - rows.y[1::2]]  # wrong for every m
    gaps = judged(about, ("sex", sex))["methods"]["fedavg"]["gaps"]
    assert gaps["groups"]["m"] == {"rows": 100, "score": 0.0}
    right = (rows.predicted["fedavg"].argmax(axis=1) == rows.y)[::2].mean()
    assert gaps["gap"] == pytest.approx(right)
    twice = comparison({"local": 0.7, "fedavg": 0.8}, [100, 100], splits=2)
    twice.test[1] = replace(twice.test[1], rows=np.arange(200))  # the same rows, in both splits
    groups = judged(twice, ("sex", sex))["methods"]["local"]["gaps"]["groups"]
    assert [group["rows"] for group in groups.values()] == [100, 100]


def test_the_worst_tenth_of_clients_has_the_largest_errors():
    about = comparison({"local": 0.7, "fedavg": 0.8}, [20] * 10)
    about = replace(about, headline=RMSE, classes=0, validation=[])
    rows = about.test[0]
    for name in rows.predicted:
        rows.predicted[name] = 1.0 + rows.owner  # the error of client c is c + 1
    about.test[0] = replace(rows, y=np.zeros(200))
    assert judged(about)["methods"]["fedavg"]["bottom_decile"] == pytest.approx(10)


def test_the_best_has_the_smallest_error():
    about = comparison({"local": 0.7, "fedavg": 0.8, "fedem": 0.8}, [40] * 5)
    for rows in (*about.test, *about.validation):
        rows.y = np.zeros(200)
        errors = {"local": 3.0, "fedavg": 1.0, "fedem": 2.0, TRIVIAL: 4.0}
        rows.predicted = {name: error * (1 + rows.owner % 2) for name, error in errors.items()}
    verdict = judged(replace(about, headline=RMSE, classes=0))["verdict"]
    assert verdict["best"] == "fedavg"
    assert verdict["gain"] == pytest.approx(2 * np.sqrt((3 * 1 + 2 * 4) / 5))
    assert verdict["trivial"]["by"] == "fedavg"


def test_where_training_alone_diverged_there_is_nothing_to_gain_over():
    rates = {"local": [0.6, 0.6, 0.0], "fedavg": [0.7, 0.7, 1.0]}
    about = comparison(rates, [200, 200, 200], diverged={"local": ["h2"]})
    found = judged(about)
    each = [client["scores"] for client in found["clients"][:2]]
    gain = np.mean([scores["fedavg"] - scores["local"] for scores in each])
    assert found["verdict"]["gain"] == pytest.approx(gain)


def test_runs_on_other_samples_are_refused_even_if_their_labels_are_the_same():
    class Ran:
        def __init__(self, *data):
            self.data_sets = data

        def __len__(self):
            return len(self.data_sets)

    data = synthetic_mixture(clients=2, dimension=2, seed=0)
    other = replace(data, test=data.test._replace(x=data.test.x + 1))
    refuse_other_data("fedavg", Ran(data), Ran(replace(data, test=data.test._replace(x=data.test.x.copy()))))
    for run in (Ran(other), Ran(data, data)):
        with pytest.raises(ValueError, match="fedavg ran on other data or other splits"):
            refuse_other_data("fedavg", run, Ran(data))


def test_the_spread_over_splits_is_that_of_a_sample():
    about = comparison({"local": 0.6, "fedavg": 0.8}, [50, 50], splits=3)
    scores = [(rows.predicted["fedavg"].argmax(axis=1) == rows.y).mean() for rows in about.test]
    found = judged(about)["methods"]["fedavg"]
    assert found["std_over_splits"] == pytest.approx(np.std(scores, ddof=1))
    assert found["mean"] == pytest.approx(np.mean(scores))


def test_without_training_alone_there_is_no_gain():
    verdict = judged(comparison({"fedavg": 0.7, "fedem": 0.8}, [100]))["verdict"]
    assert (verdict["best"], verdict["over"], verdict["gain"]) == ("fedem", None, None)
    assert "add local" in verdict["sentences"][0]


def test_of_one_client_it_is_said_that_there_is_nobody_else():
    sentences = judged(comparison({"local": 0.6, "fedavg": 0.9}, [200]))["verdict"]["sentences"]
    assert sentences[0].startswith("There is one client, so there is nobody to collaborate with")
    assert not any("single client" in each for each in sentences)


def test_intervals_hold_no_gains_that_scores_cannot_have():
    """Of eight rows Student's interval is wide; accuracies differ by at most 1."""
    found = judged(comparison({"local": 0.1, "fedavg": 0.95}, [8] * 6))
    ends = np.array([each["interval"] for each in found["clients"] if each["interval"]])
    assert len(ends) == 6
    assert ends.min() >= -1
    assert ends.max() == 1
