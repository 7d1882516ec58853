"""The verdict in words, and numbers as people read them: the same on the terminal, in JSON and on pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from majorant.app._text import neutral

IN_PER_CENT = ("accuracy", "balanced_accuracy", "macro_f1")
TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auc": "AUC",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "objective": "objective",
    "loss": "loss",
}
ERRORS = ("rmse", "mae", "objective", "loss")
NAMED = 8  # clients that a sentence names, at most


def title(metric: str) -> str:
    """What a score is called."""
    return TITLES.get(metric, metric.replace("_", " "))


def shown(value: float | None, metric: str, *, unit: bool = True) -> str:
    """A score for people: shares in per cent with one decimal, AUCs and the like with three, errors in four digits.

    >>> shown(0.8333, "accuracy"), shown(0.91, "auc"), shown(2.93123, "rmse"), shown(31384.2, "mae"), shown(None, "auc")
    ('83.3 %', '0.910', '2.931', '31380', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if metric in IN_PER_CENT:
        return f"{100 * value:.1f}" + " %" * unit
    return digits(value, 4) if metric in ERRORS else f"{value:.3f}"


def digits(value: float, count: int) -> str:
    """A number in so many digits, without an exponent up to a thousand millions.

    >>> digits(-28013.0, 3), digits(2.5, 3), digits(4.2e12, 3)
    ('-28000', '2.5', '4.2e+12')
    """
    text = f"{value:.{count}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e9 else text


def difference(value: float, metric: str) -> str:
    """A difference of scores: shares in percentage points.

    >>> difference(0.052, "accuracy"), difference(-0.0123, "auc")
    ('5.2 points', '-0.012')
    """
    return brief(value, metric) + " points" * (metric in IN_PER_CENT)


def brief(value: float, metric: str) -> str:
    """A difference without its unit; of errors in three digits.

    >>> brief(0.029270, "rmse")
    '0.0293'
    """
    return digits(value, 3) if metric in ERRORS and math.isfinite(value) else shown(value, metric, unit=False)


def between(interval: Sequence[float], metric: str) -> str:
    """An interval of a difference.

    >>> between([-0.01, 0.1], "accuracy")
    '-1.0 to 10.0'
    """
    return " to ".join(brief(end, metric) for end in interval)


def some(names: Sequence[str]) -> str:
    """Names of clients, the first few of many.

    >>> some(["a", "b"]), some([str(i) for i in range(10)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(neutral(name) for name in names[:NAMED]) + more


def traffic(megabytes: float) -> str:
    """An amount of traffic for people."""
    from majorant.engines.summary import megabytes as bytes_for_people

    return bytes_for_people(megabytes * 1e6)


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "client"), count(3, "client")
    ('1 client', '3 clients')
    """
    return f"{number} {what}" + "s" * (number != 1)


def sentences(record: dict[str, Any]) -> list[str]:
    """The verdict of a comparison, the conclusion first."""
    verdict = record["verdict"]
    found = [conclusion(record)]
    if verdict["gain"] is not None and len(record["clients"]) > 1:
        found.append(about_clients(record))
    found.append(about_trivial(record))
    if verdict["trivial"]["beats_alone"]:
        found.append(
            f"Training alone ({verdict['over']}) is worse than the trivial model: with these settings it overfits or"
            " has not converged, and with better ones the gain over it would be smaller. Try --tune, a larger"
            " --weight-decay, or more rounds."
        )
    for method, names in verdict["diverged"].items():
        everyone = len(names) == len(record["clients"])
        whom = "on every client" if everyone else f"on {count(len(names), 'client')} ({some(names)})"
        rest = "; the gain is over the other clients" if method == verdict["over"] and not everyone else ""
        found.append(f"{method} diverged {whom} and cannot win{rest}. A smaller --lr may help.")
    if verdict["small_clients"]:
        small, rows = verdict["small_clients"], "6 test rows" + " of each class" * (record["metric"] == "auc")
        found.append(
            f"{count(len(small), 'client')} of {len(record['clients'])} with fewer than {rows}"
            f" ({some(small)}) {'are' if len(small) > 1 else 'is'} too small to be judged alone;"
            f" the {'bottom' if record['higher_is_better'] else 'worst'} decile is that of the others."
        )
    if verdict["best"] is not None and verdict["megabytes"] is not None:
        clients = max(1, len(record["clients"]))
        found.append(
            f"{verdict['best']} sends {traffic(verdict['megabytes'])} in total,"
            f" {traffic(verdict['megabytes'] / clients)} for each client."
        )
    return [*found, *about_gaps(record), how(record)]


def conclusion(record: dict[str, Any]) -> str:
    """Is collaboration worth it?"""
    verdict, metric = record["verdict"], record["metric"]
    best, gain = verdict["best"], verdict["gain"]
    if verdict["over"] is None:
        named = f"; the best here is {best}, with a test {score_of(record, best)}" if best else ""
        return f"Training alone was not compared: add local to see whether collaboration is worth it{named}."
    if best is None:
        return "There is no verdict: no other method than training alone finished without divergence."
    if gain is None and len(verdict["diverged"].get(verdict["over"], [])) == len(record["clients"]):
        return "There is no verdict: training alone diverged on every client, so there is nothing to compare with."
    if gain is None:
        return f"There is no verdict: the test {title(metric)} is not defined on these rows."
    if len(record["clients"]) == 1:
        return "There is one client, so there is nobody to collaborate with: check the client column of the table."
    answer = {
        "yes": "Collaboration is worth it here",
        "no": "Collaboration is not worth it here",
        "unclear": "It is unclear whether collaboration is worth it here",
    }[verdict["worth_it"]]
    way = f"{difference(abs(gain), metric)} {'better' if gain > 0 else 'worse'} than" if gain else "the same as"
    return (
        f"{answer}: with {best} the test {title(metric)} is {shown(record['methods'][best]['mean'], metric)},"
        f" {way} training alone"
        f" (gain {brief(gain, metric)}, 95 % interval {between(verdict['interval'], metric)})."
    )


def score_of(record: dict[str, Any], method: str) -> str:
    """A method's score in words."""
    return f"{title(record['metric'])} of {shown(record['methods'][method]['mean'], record['metric'])}"


def about_clients(record: dict[str, Any]) -> str:
    """Who gains and who loses."""
    verdict = record["verdict"]
    gains, losses = verdict["gain_clients"], verdict["lose_clients"]
    judged = sum(each["verdict"] != "diverged" for each in record["clients"])
    if not gains and not losses:
        return f"No single client of {judged} gains or loses beyond noise."
    parts = []
    for names, word in ((gains, "gain"), (losses, "lose")):
        verb = word + "s" * (len(names) == 1)
        parts.append(f"{len(names)} {verb} beyond noise ({some(names)})" if names else f"none {word}s beyond noise")
    rest = verdict["unclear_clients"]
    return f"Of {judged} clients, {parts[0]} and {parts[1]}; for {rest} it is unclear."


def under_attack(attack: dict[str, Any]) -> str:
    """Whose scores are shown of a run with hostile clients.

    >>> under_attack({"name": "sign-flip:0.2", "hostile": ["north"]})
    'Under attack (sign-flip:0.2 by north): scores are those of the honest clients.'
    """
    return f"Under attack ({attack['name']} by {some(attack['hostile'])}): scores are those of the honest clients."


def whose(trivial: str) -> str:
    """What a trivial model predicts.

    >>> whose("majority class")
    "each client's majority class"
    """
    return "each client's majority class" if "class" in trivial else "each client's mean training target"


def about_trivial(record: dict[str, Any]) -> str:
    """How far the methods are above the trivial model."""
    trivial, metric = record["verdict"]["trivial"], record["metric"]
    has = f"The trivial model ({whose(trivial['name'])}) has {shown(trivial['score'], metric)}"
    if trivial["by"] is None:
        return f"{has}."
    interval = f"95 % interval {between(trivial['interval'], metric)}"
    if trivial["beaten"]:
        return f"{has}: {trivial['by']} is {difference(trivial['gain'], metric)} better ({interval})."
    return (
        f"Nothing beats the trivial model beyond noise. {has}; the gain of {trivial['by']} over it is"
        f" {difference(trivial['gain'], metric)} ({interval})."
    )


def about_gaps(record: dict[str, Any]) -> list[str]:
    """The gap between groups, of the best method."""
    method = record["verdict"]["best"] or record["verdict"]["over"]
    gaps = record["methods"].get(method, {}).get("gaps")
    if not gaps:
        return []
    metric, known = record["metric"], {k: g for k, g in gaps["groups"].items() if g["score"] is not None}
    each = ", ".join(f"{shown(g['score'], metric)} for {neutral(name)} ({g['rows']} rows)" for name, g in known.items())
    gap = f": a gap of {difference(gaps['gap'], metric)}" if gaps["gap"] is not None else ""
    return [f"By {neutral(gaps['column'])}, the {title(metric)} of {method} is {each}{gap}."]


def how(record: dict[str, Any]) -> str:
    """What the numbers are, and what they are not."""
    verdict, metric, splits = record["verdict"], record["metric"], record["splits"]
    score = f"The score is the {title(metric)}: {record['why']}."
    chosen = (
        "The best method was chosen on validation rows"
        if verdict["chosen_on"] == "validation"
        else "The best method was chosen on the test rows, as there are no validation rows, and its interval widened"
    )
    if splits == 1:
        covers = (
            "intervals cover the noise of the test rows of one split (of a table split at random, --seeds 5 draws more)"
        )
    elif record["redrawn"]:
        covers = f"intervals cover the noise of test rows and of {splits} random splits"
    else:
        covers = f"intervals cover the noise of the test rows of one split, and of {splits} seeds of the training"
    return f"{score} {chosen}; {covers}, for these clients."
