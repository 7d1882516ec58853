"""Tables with natural clients that go by a name, read as a user's own CSV file is.

Files are looked for under ``$MAJORANT_DATA/tables``, as NAME.csv.gz or NAME.csv; one table comes with the library.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Any

from majorant._tables import TABLES, Facts
from majorant.data.federated import FederatedData
from majorant.data.heart import heart_table
from majorant.data.image_files import data_folder
from majorant.data.tabular.encoding import Encoding
from majorant.data.tabular.problems import Problem, TableError, tell
from majorant.data.tabular.table import from_table


def load_table(name: str, **options: Any) -> tuple[FederatedData, Encoding]:
    """A table with natural clients by its name, such as ``"school"``: data, and how its columns became features.

    Options are those of `from_table`; without them, clients, label, task, columns to drop and, where rows at random
    would leak, the way to split are what is known about the table. Columns in ``drop`` are left out besides these. A
    notice tells what to mind. ``majorant list data`` shows the names, with sizes and licences.

    >>> data, encoding = load_table("heart")
    >>> data.name, data.clients, len(encoding.features)
    ('heart', 4, 15)
    """
    facts = table_facts(name)
    data, encoding = from_table(table_file(name), **facts.options(options))
    tell(name, [facts.caution] if facts.caution else [])
    return data, encoding


def table_facts(name: str) -> Facts:
    """What is known about a table: its columns and sizes, checksum, licence and source."""
    if name not in TABLES:
        near = difflib.get_close_matches(name, TABLES, 1)
        hint = f": did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"there is no table {name!r}{hint} Known: {', '.join(sorted(TABLES))}")
    return TABLES[name]


def table_file(name: str) -> Path:
    """The file of a table, after a look at its content."""
    facts = table_facts(name)
    if name == "heart":
        return heart_table()
    folder = data_folder() / "tables"
    found = [path for suffix in (".csv.gz", ".csv") if (path := folder / f"{name}{suffix}").is_file()]
    if not found:
        what = f"there is no such file, the table {name!r} as this project converts it"
        raise TableError(str(folder / f"{name}.csv.gz"), [Problem(what, remedy(facts))])
    if (content := checksum(found[0])) != facts.sha256:
        what = f"it is damaged, or not this project's {name}.csv: its text has the SHA-256 {content[:16]}…"
        raise TableError(str(found[0]), [Problem(what, f"remove it; {remedy(facts)}")])
    return found[0]


def remedy(facts: Facts) -> str:
    """How to come by a table."""
    flags = f"--client-column {facts.client} --label-column {facts.label} --task {facts.task}"
    drop = f" --drop {','.join(facts.drop)}" if facts.drop else ""
    split = f" --{facts.split[0].replace('_', '-')} {facts.split[1]}" if facts.split else ""
    return (
        f"put the file with the SHA-256 {facts.sha256[:16]}… (of its uncompressed text) there, or set MAJORANT_DATA;"
        f" it comes from {facts.source}. A CSV that you make from that source is read as a table of your own: --data"
        f" FILE {flags}{drop}{split}"
    )


def checksum(path: Path) -> str:
    """The SHA-256 of a file's text, compressed or not."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            fix = "remove it, and put the file there again"
            raise TableError(str(path), [Problem(f"its compressed data cannot be read ({error})", fix)]) from None
    return hashlib.sha256(raw).hexdigest()
