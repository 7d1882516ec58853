"""Reports: tables, figures and one HTML page from run folders. Drawing needs the extra ``majorant[report]``."""

from majorant.app.report.record import RunRecord, load_run

__all__ = ["RunRecord", "load_run"]
