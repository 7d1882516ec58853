"""Names with options: what they parse to, how they bind, and what the messages say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import pytest

from majorant._syntax import parse_value
from majorant.app.names import REQUIRED, Registry, UnknownName, format_name, parse


def network(
    inputs: int,
    hidden: tuple[int, ...] = (64,),
    *,
    rate: float = 0.1,
    lambda_: float = 0.0,
    batch_size: int | None = None,
    kind: Literal["relu", "tanh"] = "relu",
    bias: bool = True,
    title: str = "net",
    schedule: Callable[[int], float] | None = None,
) -> dict[str, Any]:
    return dict(locals())


@pytest.fixture
def models() -> Registry:
    registry = Registry("model", arguments=1)
    registry.register("network", network, help="layers of units")
    registry.register("fixed", lambda inputs: {"inputs": inputs})
    return registry


@pytest.mark.parametrize(
    "options",
    [
        {},
        {0: 0.5},
        {0: 1, 1: "a", "k": 2},
        {"a": 1, "b": -2.5, "c": 1e300, "d": 1e-9, "e": True, "f": None, "g": False},
        {"a": (64, 32), "b": (64,), "c": (), "d": (1e20, 2.0), "e": ("x", "y+z"), "f": ("",)},
        {"a": "8", "b": "true", "c": "None", "d": "1e3", "e": "inf", "f": "", "g": " x "},
        {"a": "a,b", "b": "k=v", "c": "it's", "d": 'say "no"', "e": "'", "f": '"', "g": '"",\'+', "h": 'x="y",\''},
        {"path": "data/visits 2024.csv", "w": r"C:\data\x.csv", "nested": "qsgd:8", "u": "naïve→", "n": "a\nb"},
        {"x": math.inf, "y": -math.inf},
    ],
)
def test_format_is_the_inverse_of_parse(options: dict[Any, Any]) -> None:
    text = format_name("some-name", options)
    name, found = parse(text)
    assert (name, found) == ("some-name", options)
    assert [type(v) for v in found.values()] == [type(v) for v in options.values()]


def test_numbers_written_with_a_plus_are_numbers() -> None:
    assert parse_value("1e+3") == 1000.0
    assert parse_value("+5") == 5


def test_what_is_no_number_stays_text() -> None:
    """The largest whole numbers are those of 64 bits; other scripts' digits and underscores are letters."""
    assert parse_value(str(2**63 - 1)) == 2**63 - 1
    assert parse_value(str(-(2**63))) == -(2**63)
    for text in (str(2**63), "１２", "1_000", "0x10", "1e", "infinity", "9" * 5000):
        assert parse_value(text) == text


@pytest.mark.parametrize("text", ["", ":a=1", "  ", "x:", "x:a=1,", "x:,a=1", "x:=1", "x:a=1,a=2", "x:a=1,5", "x:a='1"])
def test_malformed_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|twice|needs a key|not closed"):
        parse(text)


def test_options_bind_to_parameters(models: Registry) -> None:
    made = models.make("network:64+32,rate=1,lambda=0.01,batch-size=none,kind=tanh,bias=false,title=007", 5)
    assert made["inputs"] == 5
    assert made["hidden"] == (64, 32)
    assert made["rate"] == 1.0
    assert isinstance(made["rate"], float)
    assert (made["lambda_"], made["batch_size"], made["kind"]) == (0.01, None, "tanh")
    assert (made["bias"], made["title"]) == (False, "007")
    assert models.make("network:hidden=8", 5)["hidden"] == (8,)
    assert models.make("network:title=1_000", 5)["title"] == "1_000"


def test_lambda_also_means_lam() -> None:
    registry = Registry("objective")
    registry.register("mixture", lambda lam=1.0: lam)
    assert registry.make("mixture:lambda=0.5") == 0.5


def test_options_win_over_defaults_and_foreign_defaults_are_left_out(models: Registry) -> None:
    schedule = lambda step: 1.0
    made = models.make("network:rate=0.5", 5, rate=0.2, batch_size=16, schedule=schedule, seed=3)
    assert (made["rate"], made["batch_size"], made["schedule"]) == (0.5, 16, schedule)
    assert models.make("fixed", 5, rate=0.2) == {"inputs": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("netwrok", r"unknown model 'netwrok': did you mean 'network'\? Known: fixed, network"),
        ("zzz", r"unknown model 'zzz'\. Known: fixed, network"),
        ("network:rat=1", r"unknown option 'rat' .*did you mean 'rate'\? Options of network: batch_size, .*lambda"),
        ("network:schedule=1", r"unknown option 'schedule'"),
        ("fixed:rate=1", r"Options of fixed: none"),
        ("fixed:3", r"no place for '3'"),
    ],
)
def test_unknown_names_come_with_a_suggestion(models: Registry, text: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        models.check(text)
    with pytest.raises(UnknownName, match=message):
        models.make(text, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("network:rate=fast", r"option 'rate' of model 'network' must be a number, got 'fast'"),
        ("network:batch-size=1.5", "'batch_size' .* must be a whole number or none"),
        ("network:batch-size=true", "must be a whole number"),
        ("network:bias=1", "must be true or false"),
        ("network:kind=gelu", "must be one of 'relu', 'tanh'"),
        ("network:hidden=64+x", r"must be values joined by \+ \(each a whole number\), got '64\+x'"),
        (
            "network:batch-size=１２",
            "must be a whole number or none, got '１２': numbers are written with the digits 0",
        ),
        (
            "network:batch-size=1_000",
            "must be a whole number or none, got '1_000': numbers are written with the digits",
        ),
        ("network:rate=٣", "digits 0 to 9 alone"),
        ("network:hidden=64+1_0", "digits 0 to 9 alone"),
        ("network:batch-size=9223372036854775808", "whole numbers have at most 64 bits"),
        ("network:batch-size=-" + "9" * 5000, "got '-9{58}…': whole numbers have at most 64 bits"),
        ("network:rate=nan", "must be a number, got 'nan': numbers are finite"),
        ("network:rate=-inf", "numbers are finite"),
        ("network:rate=1e999", "numbers are finite"),
        ("network:lambda=1,lambda_=2", "given twice"),
        ("network:8,hidden=9", "given twice"),
        ("network:title='x", "not closed"),
    ],
)
def test_values_of_the_wrong_type_are_refused(models: Registry, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.check(text)


def test_a_missing_option_is_named() -> None:
    registry = Registry("topology")
    registry.register("grid", lambda rows, columns=2: rows * columns)
    with pytest.raises(ValueError, match=r"topology 'grid' needs rows: give it as grid:rows=\.\.\."):
        registry.make("grid")
    assert registry.make("grid:3") == 6
    assert registry.make("grid", rows=4) == 8


def test_open_ended_factories_take_any_key() -> None:
    registry = Registry("thing")
    registry.register("any", lambda **options: options)
    assert registry.make("any:a=1,b=x", c=None) == {"a": 1, "b": "x", "c": None}


def test_options_are_listed_without_what_text_cannot_say(models: Registry) -> None:
    found = {option.name: option for option in models.options("network")}
    assert list(found) == ["hidden", "rate", "lambda", "batch_size", "kind", "bias", "title"]
    assert found["rate"].default == 0.1
    assert found["hidden"].annotation == tuple[int, ...]
    assert models.help("network") == "layers of units"
    registry = Registry("topology")
    registry.register("grid", lambda rows: rows)
    assert registry.options("grid")[0].default is REQUIRED


def test_names_are_taken_once_and_factories_may_be_imported_late(models: Registry) -> None:
    with pytest.raises(ValueError, match="is taken"):
        models.register("network", network)
    with pytest.raises(ValueError, match="colon"):
        models.register("a:b", network)
    models.register("late", "fractions:Fraction")
    assert "late" in models
    assert list(models) == ["network", "fixed", "late"]
    assert models.factory("late").__name__ == "Fraction"
