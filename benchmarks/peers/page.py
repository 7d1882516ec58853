"""Results as tables in Markdown, printed and put in their places on a page.

``python -m benchmarks.peers.page RESULT.json … --page docs/how-fast.md README.md`` joins results, those of later files
in the place of earlier ones, and replaces what lies between two comments on the pages, ``<!-- peers: NAME -->`` and
``<!-- peers end -->``. NAME is ``works cpu`` (how long a round takes, tool by work), ``setting cpu`` (where and with
what it was measured), ``tables cpu`` (everything, work by work), or one of these with ``gpu``.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.peers.work import DEEP, WORKS, Work

Results = dict[str, dict[str, Any]]  # of a piece of work, by tool
OURS = ("Majorant", "Majorant, mixed precision")  # the first of them that ran is what others are measured against


def reference(results: Results) -> float:
    """Seconds of our round."""
    return next((results[name]["round_s"] for name in OURS if "round_s" in results.get(name, {})), float("nan"))


def table(work: Work, results: Results) -> str:
    """A Markdown table of one piece of work, with ratios to ours."""
    ours = reference(results)
    lines = [
        f"#### {work.name}",
        "",
        f"| tool | a round | against ours | first round after | to {work.target:.0%} | accuracy | memory | lines |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        if "not run" in found:
            if found["not run"] != f"it has no {work.method}":
                lines.append(f"| {name} | not run: {found['not run'].replace('|', '/')} | | | | | | |")
            continue
        begin = found["startup_s"] + found["first_round_s"]
        reached = found["seconds_to_target"]
        cells = [
            for_people(found["round_s"]),
            times(found["round_s"] / ours),
            f"{begin:.1f} s",
            "–" if reached is None else f"{reached:.1f} s",
            f"{found['accuracy']:.1%} after {found['rounds']}",
            f"{found.get('device_mb') or found['peak_mb']:.0f} MB",
            str(found["lines"]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def overview(works: dict[str, Results]) -> str:
    """How many times as long as ours a round takes, tool by work; a dash where a tool did not do the work."""
    lines = [f"| a round, against ours | {' | '.join(works)} |", "|---" * (1 + len(works)) + "|"]
    for tool in dict.fromkeys(name for results in works.values() for name in results):
        cells = []
        for results in works.values():
            seconds, ours = results.get(tool, {}).get("round_s"), reference(results)
            ratio = "–" if seconds is None else f"{seconds / ours:,.0f} ×" if seconds >= 10 * ours else None
            ratio = ratio or f"{seconds / ours:.2g} ×"
            cells.append(for_people(seconds) if seconds and tool in OURS else ratio)
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def times(ratio: float) -> str:
    """A ratio in three digits, or all of its whole ones."""
    return f"{ratio:,.0f} ×" if ratio >= 1000 else f"{ratio:.3g} ×"


def for_people(seconds: float) -> str:
    """A time in milliseconds or seconds."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def setting(machines: list[str], works: dict[str, Results]) -> str:
    """Where and with what it was measured."""
    ran = [found for results in works.values() for found in results.values() if "round_s" in found]
    versions = sorted(
        {part for found in ran for part in found["version"].split(", ") if part[-1].isdigit() or "+" in part}
    )
    loads = sorted(found["load"] for found in ran)
    told = (
        f"Measured on {' and '.join(dict.fromkeys(machines))}, with {', '.join(versions)}; "
        f"the machine's load was {loads[0]:.1f} to {loads[-1]:.1f} when tools were started."
    )
    return textwrap.fill(told, 120) + "\n"


def parts(records: list[dict[str, Any]]) -> dict[str, str]:
    """What can stand on the page, by name; results of later records take the place of earlier ones."""
    found = {}
    for name, known in (("cpu", WORKS), ("gpu", DEEP)):
        works: dict[str, Results] = {}
        machines = []
        for record in records:
            for work in known:
                if work.name in record["works"]:
                    works.setdefault(work.name, {}).update(record["works"][work.name])
                    machines.append(f"{record['machine']} ({record.get('date', 'no date')})")
        if works:
            found[f"works {name}"] = overview(works)
            found[f"setting {name}"] = setting(machines, works)
            found[f"tables {name}"] = "\n".join(table(work, works[work.name]) for work in known if work.name in works)
    return found


def rewritten(page: str, found: dict[str, str]) -> str:
    """The page with new tables between its comments."""
    for name, text in found.items():
        place = re.compile(rf"(<!-- peers: {name} -->\n).*?(<!-- peers end -->)", re.DOTALL)
        page = place.sub(lambda match, text=text: f"{match[1]}\n{text}\n{match[2]}", page)  # type: ignore[misc]
    return page


def rewrite(pages: list[Path], found: dict[str, str]) -> None:
    """Files of pages with new tables."""
    for page in pages:
        page.write_text(rewritten(page.read_text(encoding="utf-8"), found), encoding="utf-8")


def main() -> None:
    """Prints, and changes the page if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    found = parts([json.loads(file.read_text(encoding="utf-8")) for file in given.results])
    print("\n".join(found.values()))
    rewrite(given.page, found)


if __name__ == "__main__":
    main()
