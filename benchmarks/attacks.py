"""Who is hurt by hostile clients: methods × rules × attacks × shares, and what rules, noise and secure sums cost.

``python -m benchmarks.attacks study OUT.json synthetic|digits [METHOD …]`` trains every method under every attack and
rule and writes the accuracy of honest clients (`attack_study`). ``python -m benchmarks.attacks table FILE …`` prints
tables for a page. ``python -m benchmarks.attacks cost OUT.json`` times a round of FedAvg with every rule and stage
against the plain one, and counts its bytes (`attack_costs`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.attack_costs import cost
from benchmarks.attack_study import METHODS, study
from benchmarks.attack_tables import tables
from majorant.engines.programs import enable_compilation_cache


def main() -> None:
    """``study OUT.json NAME [METHOD …]``, ``table FILE …`` or ``cost OUT.json``."""
    kind, out, *names = sys.argv[1:]
    enable_compilation_cache()
    if kind == "table":
        lines = [line for file in (out, *names) for line in json.loads(Path(file).read_text(encoding="utf-8"))]
        print(tables(lines, (0.2, 0.4)))
    elif kind == "cost":
        for line in cost(Path(out)):
            print(f"{line['name']:36s} {line['time_ratio']:6.2f} × seconds, {line['bytes_ratio']:5.2f} × bytes up")
    else:
        study(names[0], Path(out), tuple(names[1:]) or METHODS)


if __name__ == "__main__":
    main()
