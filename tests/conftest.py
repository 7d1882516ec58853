"""Tests compile many small programs and run each for a moment: XLA's expensive optimisations would take most of the time."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
