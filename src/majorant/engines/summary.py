"""The numbers of a run as a dictionary, and in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MUCH_PADDING = 0.5  # the share from which on a summary in words speaks of it
PADDED = {"memory": "rows in memory", "work": "rows worked on"}


class Summary(dict):
    """The numbers of a run as a dictionary that prints readably."""

    def __str__(self) -> str:
        metric = self["metric"]
        several = f", {self['runs']} runs (means over them)" if self["runs"] > 1 else ""
        rounds = f"{self['rounds']} rounds" + (f" (stopped by {self['stopped']})" if self.get("stopped") else "")
        if "kept_round" in self:
            rounds += f", models of round {', '.join(map(str, self['kept_round']))}"
        lines = [f"{self['algorithm']} on {self['dataset']}: {rounds}, {self['clients']} clients{several}"]
        for name in (f"test_{metric}", f"train_{metric}", f"unseen_{metric}"):
            if name in self:
                s = self[name]
                tail = "bottom decile" if metric == "accuracy" else "worst decile"
                lines.append(
                    f"  {name.replace('_', ' '):16s} {shown(s['mean'], metric)}{between(s, metric)} mean,"
                    f" {shown(s['bottom_decile'], metric)} {tail}, {shown(s['std'], metric)} std over clients"
                )
        lines += [
            f"  {name:16s} {text}" for name, text in (("objective", distance(self)), ("a client", work(self))) if text
        ]
        if self.get("rejected"):
            such = ", ".join(repr(name) for name in self.get("rejected_clients", [])[:3])
            lines.append(
                f"  rejected         {self['rejected']} updates" + (f", such as those of {such}" if such else "")
            )
        if "privacy" in self:
            lines += [f"  {'privacy':16s} {line}" for line in promised(self["privacy"])]
        if "attack" in self:
            hostile = len(self["attack"]["hostile"])
            who = f"{hostile} client{'s' * (hostile != 1)}"
            lines.append(f"  under attack     {self['attack']['name']} by {who}; scores are of the honest ones")
        if max((empty := self.get("padding", {"memory": 0.0})).values()) >= MUCH_PADDING:
            shares = ", ".join(f"{100 * share:.0f} % of the {PADDED[what]}" for what, share in empty.items())
            lines.append(f"  padding          {shares}: the clients' sizes differ much")
        up, down = self["communication"]["bytes_up"], self["communication"]["bytes_down"]
        spent = ", ".join(f"{k} {v:.1f} s" for k, v in self["seconds"].items())
        return "\n".join([*lines, f"  sent {megabytes(up)} up, {megabytes(down)} down; {spent}"])

    __repr__ = __str__


def distance(summary: dict[str, Any]) -> str:
    """The objective at the end, and how far it is from its minimum, in words.

    >>> distance({"objective": 0.5, "suboptimality": 1e-9, "gradient_norm": 2e-5})
    'F = 0.5, F − F* = 1e-09, gradient norm 2e-05'
    """
    words = {"objective": "F = {:.6g}", "suboptimality": "F − F* = {:.3g}", "gradient_norm": "gradient norm {:.3g}"}
    return ", ".join(form.format(summary[name]) for name, form in words.items() if name in summary)


def work(summary: dict[str, Any]) -> str:
    """The gradients that a client has computed, in words.

    >>> work({"gradients": {"w": 1200.0, "beta": 4000.0}, "iterations": 52.0})
    '1,200 gradients in w, 4,000 in β, in 52 iterations'
    """
    if "gradients" not in summary:
        return ""
    w, beta = summary["gradients"]["w"], summary["gradients"]["beta"]
    steps = f", in {summary['iterations']:,.0f} iterations" if "iterations" in summary else ""
    return f"{w:,.0f} gradients in w, {beta:,.0f} in β{steps}"


def promised(privacy: Mapping[str, Any]) -> list[str]:
    """The guarantee of a run in words."""
    drawn = {"server": "at the server", "client": "at every client", "together": "by all clients together"}
    noise = f"noise {privacy['noise_multiplier']:g} × {privacy['clip']:.3g}, drawn {drawn[privacy['noise_at']]}"
    whole = (
        f"; all {privacy['runs']} runs together ε = {privacy['epsilon_of_all_runs']:.3g}" if "runs" in privacy else ""
    )
    return [
        f"ε = {privacy['epsilon']:.3g} at δ = {privacy['delta']:g} for a {privacy['unit']}, {noise}{whole}",
        f"protects {privacy['protects']}",
    ]


def between(score: dict[str, float], metric: str) -> str:
    """The standard deviation between runs, where there are several."""
    return f" ± {shown(score['std_over_runs'], metric)}" if "std_over_runs" in score else ""


def shown(value: float | None, metric: str) -> str:
    """A score for people: accuracies in per cent; a dash where it is not known.

    >>> shown(0.5, "accuracy"), shown(None, "rmse")
    ('50.0 %', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"


def megabytes(count: float) -> str:
    """Bytes for people.

    >>> megabytes(2_500_000)
    '2.5 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
