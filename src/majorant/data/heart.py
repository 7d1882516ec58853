"""A small real table that comes with the library: patients of four hospitals."""

from __future__ import annotations

from pathlib import Path


def heart_table() -> Path:
    """The path of a CSV file: 740 patients of four hospitals, ten features each, and whether they have heart disease.

    A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano (1989), Heart Disease, UCI Machine Learning Repository,
    doi:10.24432/C52P4X, CC BY 4.0; ``files/README.md`` says what was changed.

    >>> from majorant.data import from_table
    >>> data, encoding = from_table(heart_table(), client_column="hospital", label_column="disease")
    >>> data.names, len(encoding.features)
    (('cleveland', 'hungarian', 'switzerland', 'va'), 15)
    """
    return Path(__file__).parent / "files" / "heart.csv.gz"
