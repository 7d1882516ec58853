"""Names with options, configuration, run folders, reports."""
