"""The command line's options, each described once for all commands that take it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str | None, typer.Option("--data", "-d", help="Named data (synthetic:clients=100) or a CSV/Parquet file.")
]
Objective = Annotated[
    str | None, typer.Option(help="Personalized objective of lsgd, acd, asvrcd, …: mixture:lambda=0.1.")
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="Model: auto, linear, mlp:hidden=64+32, cnn.")]
Rounds = Annotated[int | None, typer.Option("--rounds", "-r", help="Communication rounds, at most.")]
Until = Annotated[
    list[str] | None, typer.Option(help="Stop early at a bound: 'gradient_norm < 1e-6' (repeatable, one is enough).")
]
Seed = Annotated[int | None, typer.Option(help="First seed.")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds, run side by side.")]
Participation = Annotated[str | None, typer.Option(help="full, uniform:0.2, bernoulli:0.2 or cyclic:0.2.")]
Compression = Annotated[str | None, typer.Option(help="Uploads in fewer bits: quantized:8, natural, top-k:0.05.")]
Topology = Annotated[str | None, typer.Option(help="No server: peers on a ring, torus, erdos-renyi:0.5, …")]
Scaling = Annotated[str | None, typer.Option(help="Peers' displacements: by their sizes, or none.")]
Diagnostics = Annotated[
    bool | None, typer.Option(help="Measure convergence at every evaluation (default: where there is an objective).")
]
Reference = Annotated[
    bool | None, typer.Option(help="Find the objective's minimum, to measure against (default: where that is quick).")
]
Precision = Annotated[str | None, typer.Option(help="single (float32) or double (float64).")]
Unseen = Annotated[float | None, typer.Option(help="Share of the clients kept away from training.")]
EvaluateEvery = Annotated[int | None, typer.Option(help="Rounds between evaluations.")]
ClientColumn = Annotated[str | None, typer.Option(help="Column of a table that says whose a row is.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of a table that is predicted.")]
Task = Annotated[str | None, typer.Option(help="classification, regression or auto.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column of a table to leave out (repeatable).")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate of the clients.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over a client's samples in a round.")]
Steps = Annotated[int | None, typer.Option(help="Minibatches in a round, instead of epochs.")]
BatchSize = Annotated[int | None, typer.Option(help="Samples in a minibatch (0: all at once).")]
Momentum = Annotated[float | None, typer.Option(help="Momentum of local SGD.")]
WeightDecay = Annotated[float | None, typer.Option(help="Weight decay of local SGD.")]
Schedule = Annotated[str | None, typer.Option(help="constant, multi-step or cosine.")]
Optimizer = Annotated[str | None, typer.Option(help="sgd, an optax optimizer (adam), lbfgs, newton or least-squares.")]
Config = Annotated[Path | None, typer.Option("--config", "-c", help="A TOML file; flags take precedence over it.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run (default: a new one under runs/).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the resolved configuration and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")]
Figures = Annotated[str | None, typer.Option(help="Also write the figures as pdf, png or svg.")]
