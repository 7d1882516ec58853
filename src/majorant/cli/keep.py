"""``majorant personalize``, ``predict`` and ``export``: models that people keep. Heavy modules are imported inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from majorant._words import some
from majorant.app.table_settings import check_later_table
from majorant.app.wording import count
from majorant.cli.options import Json
from majorant.cli.terminal import print_json, say, warn

MODEL = "A personal model's folder, or a run folder: what it gives to a client without samples."


def personalize(
    folder: Annotated[Path, typer.Argument(help="The run folder: runs/last.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data", "-d", help="The new client's samples: CSV or Parquet as in training, or npz with x and y."
        ),
    ],
    client: Annotated[
        str | None, typer.Option(help="Whose rows to take, if the file has several clients.", metavar="NAME")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="The folder of the model (default: personal/NAME in the run folder).")
    ] = None,
    folds: Annotated[
        int, typer.Option(help="Parts for cross-validation on the client's samples; 0: no scores.", min=0, max=1000)
    ] = 5,
    predict: Annotated[Path | None, typer.Option(help="Samples to predict with the new model.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where predictions go as CSV (default: beside the run).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a model for a client that did not take part in training, from its own samples alone, and score it."""
    if folds == 1:
        raise ValueError("--folds takes 0 (no scores), or at least 2 parts: one to predict, the others to fit")
    if out is not None and predict is None:
        raise ValueError("--out is for the predictions of --predict FILE; the folder of the model is --save FOLDER")
    check_later_table(folder, data, labelled=True)
    if predict is not None:
        check_later_table(folder, predict, labelled=False)
    from majorant.app.personalize import personalize_from_files

    result = personalize_from_files(folder, data, predict, out, client=client, save=save, folds=folds)
    if result["took_part"]:
        warn(
            f"the run trained on a client named {result['client']}: if these are its rows, the shared model has seen"
            " them, and scores are not out of sample"
        )
    if as_json:
        return print_json(result)
    say(f"a personal model for {result['client']} from {count(result['samples'], 'sample')} of {data}", wrap=False)
    for name in ("mixture_weights", "fit"):
        if result.get(name) is not None:
            say(f"  {name.replace('_', ' ')}: {result[name]}", wrap=False)
    if result["out_of_sample"] is not None:
        say("\n".join(worth_in_words(result["out_of_sample"])), wrap=False)
    say(f"model: {result['model']}", wrap=False)
    if result["predictions"] is not None:
        say(f"predictions: {result['predictions']}", wrap=False)


def worth_in_words(found: dict[str, Any]) -> list[str]:
    """The scores out of sample, and the gain over training alone."""
    from majorant.metrics.intervals import LEAST_ROWS

    percent = found["metric"] == "accuracy"
    shown = lambda value: f"{100 * value:.1f} %" if percent else f"{value:.4g}"
    metric, unit = ("accuracy", " points") if percent else ("RMSE", "")
    names = {
        "personal": "this personal model",
        "alone": "training alone",
        "shared": "the shared model",
        "trivial": "the most frequent class" if percent else "the mean of the targets",
    }
    lines = [f"  {metric} out of sample ({found['folds']} folds of its own {found['samples']} samples):"]
    areas = found.get("auc") or {}
    also = lambda name: f"   AUC {areas[name]:.3f}" if name in areas else ""
    lines += [f"    {words:24}{shown(found[name]):>10}{also(name)}" for name, words in names.items()]
    factor = 100 if percent else 1
    gain, error = factor * found["gain"], factor * found["standard_error"]
    digits = ".1f" if percent else ".3g"
    clear = gain == 0 or (abs(gain) > 2 * error and found["samples"] >= LEAST_ROWS)
    doubt = "" if clear else ", which may be chance"
    return [*lines, f"  gain over training alone: {gain:{digits}}{unit} ± {error:{digits}} (standard error){doubt}"]


def predict(
    model: Annotated[Path, typer.Argument(help=MODEL)],
    data: Annotated[
        Path, typer.Option("--data", "-d", help="What to predict: CSV or Parquet with the columns of training, or npz.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The CSV file to write (default: beside the data).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the predictions of a saved model, with a probability for each class."""
    check_later_table(model, data, labelled=False)
    from majorant.app.personalize import predict_from_files

    result = predict_from_files(model, data, out)
    if result["rows_of_others"]:
        names = some(result["rows_of_others"], show=str)
        warn(f"the model belongs to client {result['client']}, but {data} has rows of {names}: predicted all the same")
    if as_json:
        return print_json(result)
    say(f"{result['samples']} predictions: {result['predictions']}", wrap=False)


def export(
    model: Annotated[Path, typer.Argument(help=MODEL)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file: .json (coefficients of a linear model), .onnx or .stablehlo."),
    ],
    as_json: Json = False,
) -> None:
    """Write a saved model for other programs: coefficients, ONNX or StableHLO."""
    from majorant.app.export import check_suffix, export_model
    from majorant.app.personal_model import load_model

    check_suffix(out)
    written = export_model(load_model(model), out)
    if as_json:
        return print_json(written)
    say(f"{written['what']}: {out}", wrap=False)
