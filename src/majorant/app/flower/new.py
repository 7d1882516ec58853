"""A Flower app folder for a study: what ``flwr run`` starts."""

from __future__ import annotations

from pathlib import Path

import tomli_w

import majorant
from majorant.app.files import atomic_write_text
from majorant.app.flower.study import Study
from majorant.app.folders import check_folder, slug

APP = '''"""The {what} of this study: `study.toml` beside it says everything."""

from pathlib import Path

from majorant.app.flower.apps import {function}

app = {function}(Path(__file__).with_name("study.toml"))
'''
README = """# A study by Majorant, on Flower

`study/study.toml` says what is trained, and how many silos take part; all parties have the same.

- Server: `flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \\
  --enable-supernode-auth --disable-runtime-dependency-installation --host 0.0.0.0 --port 8000`
- Each silo: `flower-supernode --superlink SERVER:8000 --root-certificates ca.crt \\
  --auth-supernode-private-key KEY --node-config 'name="NAME" data="/path/of/rows.csv" state="/path/of/folder"'`
- Start: `flwr run . NAME-OF-THE-SUPERLINK --run-config 'out="/path/of/the/run/folder"' --stream`;
  after a crash the same with `resume=true` in the run configuration.
"""


def write_app(folder: Path, study: Study) -> Path:
    """Writes the folder; refuses one that has something in it."""
    study.check()
    check_folder(folder)
    package = folder / "study"
    package.mkdir(parents=True, exist_ok=True)
    atomic_write_text(folder / "pyproject.toml", tomli_w.dumps(project(folder.resolve().name)))
    atomic_write_text(folder / "README.md", README)
    atomic_write_text(package / "__init__.py", '"""A study by Majorant."""\n')
    for what, function in (("ClientApp", "client_app"), ("ServerApp", "server_app")):
        atomic_write_text(package / f"{function}.py", APP.format(what=what, function=function))
    atomic_write_text(package / "study.toml", study.to_toml())
    return folder


def project(name: str) -> dict[str, object]:
    """What ``pyproject.toml`` says."""
    return {
        "project": {
            "name": slug(name).lower() or "study",
            "version": "1.0.0",
            "description": "A study by Majorant",
            "license": "Apache-2.0",
            "dependencies": [f"majorant[flower,tabular]>={majorant.__version__}"],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "majorant",
                    "components": {"serverapp": "study.server_app:app", "clientapp": "study.client_app:app"},
                    "config": {"out": "run", "resume": False, "status": ""},
                },
            },
            "hatch": {"build": {"targets": {"wheel": {"packages": ["study"]}}}},
        },
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
    }
