"""Tables for a page, from the lines of a study."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.attack_study import ATTACKS, METHODS, RULES, Case


def tables(lines: list[dict[str, Any]], shares: tuple[float, ...]) -> str:
    """For each data set: methods by attacks under the mean, by rules under the worst attack, FedAvg by both."""
    told = []
    for name in dict.fromkeys(line["data"] for line in lines):
        here = [line for line in lines if line["data"] == name and not line.get("tuning")]
        found = {(*(line[key] for key in Case._fields[:4]), line["method"]): line for line in here}
        score = lambda *key, found=found: 100 * np.mean(found[key]["test"]) if key in found else np.nan
        under = lambda method, rule, kind, score=score: [score(rule, kind, share, -1, method) for share in shares]
        shown = lambda each: " / ".join("–" if np.isnan(one) else f"{one:.0f}" for one in each)
        known = [method for method in METHODS if any(line["method"] == method for line in here)]
        told += [f"{name}, the mean:", *header(["method", "none", *ATTACKS])]
        for method in known:
            free = shown([score("mean", "none", 0.0, -1, method)])
            told.append(row([method, free, *(shown(under(method, "mean", kind)) for kind in ATTACKS)]))
        told += [f"{name}, the worst attack (and none):", *header(["method", "mean", *RULES])]
        for method in known:
            cells = []
            for rule in ("mean", *RULES):
                worst = np.min([under(method, rule, kind) for kind in ATTACKS], axis=0)
                cells.append(f"{shown([score(rule, 'none', 0.0, -1, method)])}: {shown(worst)}")
            told.append(row([method, *cells]))
        told += [f"{name}, fedavg:", *header(["rule", "none", *ATTACKS])]
        for rule in ("mean", *RULES):
            free = shown([score(rule, "none", 0.0, -1, "fedavg")])
            told.append(row([rule, free, *(shown(under("fedavg", rule, kind)) for kind in ATTACKS)]))
        for line in here:
            if line["component"] == 0:
                weight, mean = np.mean([pi[0] for pi in line["pi"]]), np.mean(line["test"])
                told.append(f"one component, {line['attack']} {line['share']:g}: weight {weight:.2f}, {mean:.3f}")
    return "\n".join(told)


def row(cells: list[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def header(names: list[str]) -> list[str]:
    """The first two lines of a table."""
    return [row(names), "|---" * len(names) + "|"]
