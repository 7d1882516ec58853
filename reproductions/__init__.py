"""The papers' experiments, as users of Majorant: `majorant reproduce` finds them by entry point."""
