"""Privacy and hostile clients by commands: what a run that hides samples leaves behind, and what is refused."""

import json

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant

from commands import invoke, refused

DATA = ["--data", "synthetic:clients=12,dimension=3"]


def test_a_run_that_hides_samples_counts_every_step_and_stops_before_its_budget_is_passed(tmp_path):
    """Each of 5 steps a round is a Gaussian on a Poisson sample of 8 of the smallest client's rows."""
    steps = ["--sample-noise", 1.1, "--clip", 1.0, "--steps", 5, "--batch-size", 8, "--delta", 1e-3]
    invoke("run", "fedavg", *DATA, *steps, "--epsilon", 6, "--rounds", 30, "--out", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    told, rounds = summary["privacy"], summary["rounds"]
    assert (told["unit"], told["noise_multiplier"], told["clip"], told["budget"]) == ("sample", 1.1, 1.0, 6.0)
    assert "the server included" in told["protects"]
    assert "how many samples each client has" in told["not_covered"]
    fewest = min(int(row.split(",")[2]) for row in (tmp_path / "run" / "clients.csv").read_text().splitlines()[1:])

    def spent(rounds):
        counting = PLDAccountant()
        step = dp.PoissonSampledDpEvent(8 / fewest, dp.GaussianDpEvent(1.1))
        counting.compose(dp.SelfComposedDpEvent(step, 5 * rounds))
        return counting.get_epsilon(1e-3)

    assert told["epsilon"] == pytest.approx(spent(rounds), rel=1e-3)
    assert spent(rounds) < 6 < spent(rounds + 1)
    assert "budget of privacy" in summary["stopped"]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["epsilon"] == told["epsilon"]
    assert "every single sample" in (tmp_path / "run" / "report.html").read_text()


REFUSED = {
    "epsilon must be a positive number": ["fedavg", "--epsilon", "0"],
    "epsilon must be a positive number, a budget of privacy loss, got -1": ["fedavg", "--epsilon", "-1"],
    "delta must be between 0 and 1": ["fedavg", "--epsilon", "8", "--delta", "1"],
    "noise without clipping hides nobody": ["fedavg", "--channel", "gaussian:1.0"],
    "amplification by sampling cannot be claimed": [
        *["fedavg", "--epsilon", "8", "--participation", "cyclic:0.25", "--amplification"]
    ],
    "bears 2 hostile clients among 12, and sign-flip:0.4 has 4": [
        *["fedavg", "--combine", "trimmed-mean:0.2", "--attack", "sign-flip:0.4,strict=true"]
    ],
    "Krum needs at least 2f + 3 = 13 clients": ["fedavg", "--combine", "krum:0.45"],
    "needs 28 bits, more than the modulus of 24": ["fedavg", "--channel", "secure-sum:1.0,bits=24,modulus=24"],
    "a sum of fewer than 20 clients is not opened, and 12 train": ["fedavg", "--channel", "secure-sum:1,threshold=20"],
    "sample_noise without clip hides nothing": ["fedavg", "--sample-noise", "1.0"],
    "sample_noise promises nothing for ditto": ["ditto", "--sample-noise", "1", "--clip", "1", "--steps", "2"],
    "sample_noise promises nothing for scaffold": ["scaffold", "--sample-noise", "1", "--clip", "1", "--steps", "2"],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_promised_is_refused_in_words(words, tmp_path):
    assert words in refused("run", *REFUSED[words], *DATA, "--rounds", 2, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
