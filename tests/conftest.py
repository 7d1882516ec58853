"""Tests in all folders import `zoo`, which lies here: this file puts the folder on their path.

Compiled programs are kept beside the tests, not in the user's own cache: workers share them. The tests of PyTorch
clients are collected where PyTorch is installed: the test set-up leaves it out, as it is large.
"""

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("MAJORANT_COMPILATION_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))

collect_ignore = [] if importlib.util.find_spec("torch") else ["models/test_torch_adapter.py"]
