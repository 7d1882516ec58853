"""Models for other programs: plain coefficients of linear ones, ONNX and StableHLO of all."""

from majorant.app.export.model import check_suffix, export_model

__all__ = ["check_suffix", "export_model"]
