"""Tests in all folders import `zoo`, which lies here: this file puts the folder on their path.

Compiled programs are kept beside the tests, not in the user's own cache: workers share them.
"""

import os
from pathlib import Path

os.environ.setdefault("MAJORANT_COMPILATION_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
