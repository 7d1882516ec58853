"""What the lines of a configuration are made of: types, and how the help shows a setting."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

PANELS = ("Front", "Data", "Method", "Exchange", "Privacy", "Training")  # of the help, in this order
Count = Annotated[int, Field(ge=1, lt=1 << 31)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]  # files have lists
STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Flag:
    """How the help shows a setting: its panel, names of the flag (a long one replaces the setting's), the default."""

    def __init__(self, panel: str, *names: str, default: str | None = None) -> None:
        self.panel, self.names, self.default = panel, names, default
