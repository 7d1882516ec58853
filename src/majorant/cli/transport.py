"""``majorant transport``: a transport map between tables on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from majorant.cli.options import Json, Out
from majorant.cli.pareto import number
from majorant.cli.terminal import print_json, say


def transport(
    data: Annotated[str, typer.Option("--data", "-d", help="The clients' rows: a CSV or Parquet file.")],
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", "-r", help="Public rows with the same columns, to carry the others onto; or barycentre."
        ),
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(help="The column that names the client (default: all rows are one client's).")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="A column to transport (repeatable; default: all columns of numbers).")
    ] = None,
    by: Annotated[
        Path | None, typer.Option("--map", help="Apply the map of this folder instead of learning one.")
    ] = None,
    method: Annotated[str, typer.Option(help="network or gaussian.", metavar="TEXT")] = "network",
    loss: Annotated[str, typer.Option(help="max-min or cycle.", metavar="TEXT")] = "max-min",
    cycle: Annotated[str, typer.Option(help="The weight of the round trip, for cycle.", metavar="NUMBER")] = "1.0",
    rounds: Annotated[str, typer.Option(help="Rounds of communication.", metavar="INTEGER")] = "500",
    participation: Annotated[str, typer.Option(help="The share of the clients in a round.", metavar="NUMBER")] = "1.0",
    bits: Annotated[
        str | None, typer.Option(help="Bits of a number on its way to the server.", metavar="INTEGER")
    ] = None,
    seed: Annotated[str, typer.Option(help="Of everything random.", metavar="INTEGER")] = "0",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Learn one map from the rows of all clients to a public reference, or apply such a map."""
    from majorant.app.folders import check_folder, new_folder, point_last_at, working_in
    from majorant.app.transport import apply_map, transport_tables

    if (by is None) == (reference is None):
        raise ValueError("give --reference to learn a map, or --map to apply one that was learnt")
    if by is not None:
        target = out or Path(data).with_name(f"{Path(data).name.split('.')[0]}-transported.csv")
        found = apply_map(by, data, target)
        return print_json(found) if as_json else say(f"{found['rows']} rows, carried, in {target}", wrap=False)
    options: dict[str, Any] = {
        "method": method,
        "loss": loss,
        "cycle": number("--cycle", cycle, float),
        "max_iter": number("--rounds", rounds, int),
        "participation": number("--participation", participation, float),
        "bits": number("--bits", bits, int),
        "random_state": number("--seed", seed, int),
    }
    if options["max_iter"] < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    if out is not None:
        check_folder(out)
    folder = out or new_folder(Path("runs"), "transport")
    assert reference is not None
    with working_in(folder):
        found = transport_tables(data, client_column, reference, folder, columns or [], **options)
    point_last_at(folder)
    if as_json:
        return print_json(found | {"folder": str(folder)})
    say(f"{found['rows']} rows of {found['clients']} clients onto {found['reference_rows']} of the reference")
    say(f"squared distance to it, over its variance: {found['distance_before']:.4g} → {found['distance_after']:.4g}")
    if found["held_out"] is not None:
        say(found["held_out"]["words"])
    say(f"transported rows, the map and a summary are in {folder}", wrap=False)
