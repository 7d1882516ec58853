"""``majorant flower``: studies on a real network. Heavy modules are imported inside."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Annotated

import typer

from majorant.cli.options import Figures, Json, Out
from majorant.cli.terminal import check_figures, print_json, say

flower = typer.Typer(
    name="flower",
    help="Train on a real network with Flower: each silo keeps its own rows and private state.",
    no_args_is_help=True,
)
Study = Annotated[Path, typer.Option("--config", "-c", help="The study: a run's settings, and a table \\[flower].")]


@flower.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    config: Study,
    clients: Annotated[int | None, typer.Option(help="How many silos train.", min=1)] = None,
) -> None:
    """Write a Flower app for a study, which flwr run starts."""
    from majorant.app.flower.new import write_app
    from majorant.app.flower.study import read_study

    write_app(folder, read_study(config, clients=clients))
    say(f"a Flower app: {folder}; its README.md says how to start it", wrap=False)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    host: Annotated[list[str], typer.Option(help="A name or address that silos reach the server by.")],
    silo: Annotated[list[str] | None, typer.Option(help="A silo's name: it gets a key of its own.")] = None,
) -> None:
    """Make certificates for a server, and a key for each silo."""
    from majorant.app.flower.certificates import make_certificates, make_node_key

    make_certificates(folder, host)
    for name in silo or ():
        make_node_key(folder / "silos", name)
    say(
        f"certificates and keys: {folder}; the server keeps server.key, each silo its own key, all have ca.crt",
        wrap=False,
    )


@flower.command()
def up(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The study: a run's settings, and a table \\[flower].")
    ] = None,
    out: Out = None,
    clients: Annotated[int | None, typer.Option(help="How many silos train.", min=1)] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.")] = None,
    port: Annotated[
        int | None, typer.Option(help="The SuperLink's port (default: a free one).", min=1, max=65535)
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and without keys.")] = False,
    as_json: Json = False,
    figures: Figures = None,
) -> None:
    """Run a whole federation on this machine, with real processes: for trying out, and for tests."""
    from majorant.app.flower.study import read_study
    from majorant.app.folders import new_folder, point_last_at
    from majorant.cli._failures import at_work_in
    from majorant.cli.terminal import progress, tell_where
    from majorant.cli.train import write_pages

    check_figures(figures)
    if config is None and resume is None:
        raise ValueError("give --config, a study to begin with, or --resume, a run folder to resume")
    if out is not None and resume is not None:
        raise ValueError("--resume continues in the run's own folder: leave --out out")
    study = read_study(config or resume / "config.toml", clients=clients)  # type: ignore[operator]
    from majorant.app.flower.up import up as bring_up
    from majorant.app.signed import read_signed
    from majorant.engines.summary import Summary

    folder = resume or out or new_folder(Path("runs"), f"flower-{study.config.algorithm}")
    left = lambda: (
        f"resume with majorant flower up --resume {folder}" if (folder / "checkpoint").exists() else "nothing is kept"
    )
    rounds = study.config.rounds
    with at_work_in(folder, left), progress([study.config.algorithm], rounds, quiet=as_json) as bars:
        advance = functools.partial(bars.advance, 0)
        options = {"insecure": insecure, "port": port, "resume": resume is not None or out is None}
        try:
            bring_up(study, folder, on_evaluation=advance, **options)  # type: ignore[arg-type]
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()  # of a study that was refused nothing is left: this only removes an empty folder
            raise
        summary = read_signed(folder / "summary.json")
        bars.finish(0, summary["rounds"])
    point_last_at(folder)
    report = write_pages([folder], folder, figures)
    if as_json:
        return print_json(summary)
    say(str(Summary(summary)))
    tell_where(folder, report)
    say(f"each silo's own model: {folder / 'silos'}/NAME/model", wrap=False)
