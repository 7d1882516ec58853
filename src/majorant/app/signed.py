"""JSON files that say whether they were changed since: each has a checksum of its content, and of files beside it.

``check`` is of all other entries, so that a file of another layout with the same content is the same. ``sha256`` has
the checksums of files in the same folder, by name. Both come with the content in one atomic write: no crash leaves a
file that looks changed. A file without them, as older versions wrote it, is read as it is. This finds accidents and
edits, not forgers, who can make checksums anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from majorant.app.files import DamagedFile, atomic_write_text, read_json, strict_json

CHECK, BESIDE = "check", "sha256"


class ChangedFile(DamagedFile):
    """A file with another content than was written."""


def digest(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_of(content: Mapping[str, Any]) -> str:
    """The checksum of what JSON says, whatever its layout."""
    return digest(json.dumps({key: value for key, value in content.items() if key != CHECK}, sort_keys=True).encode())


def signed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content as JSON says it, with its checksum.

    >>> sorted(signed({"rounds": 3}))
    ['check', 'rounds']
    """
    plain = json.loads(strict_json(dict(content)))
    return plain | {CHECK: check_of(plain)}


def verified(content: Any, path: Path) -> Any:
    """The content of a file without its checksum, which must be right if there is one."""
    if not isinstance(content, dict) or CHECK not in content:
        return content
    if content[CHECK] != check_of(content):
        raise ChangedFile(f"{path} was altered: its checksum does not match")
    return {key: value for key, value in content.items() if key != CHECK}


def write_signed(path: Path, content: Mapping[str, Any], beside: Iterable[str] = ()) -> None:
    """Writes a JSON file with its checksum, and those of the files beside it that are there."""
    sums = {name: digest(path.with_name(name).read_bytes()) for name in beside if path.with_name(name).is_file()}
    atomic_write_text(path, strict_json(signed({**content, **({BESIDE: sums} if sums else {})}), indent=2) + "\n")


def read_signed(path: Path) -> Any:
    """What a JSON file holds that nobody changed, and no file beside it that it knows."""
    content = verified(read_json(path), path)
    sums = content.get(BESIDE, {}) if isinstance(content, dict) else {}
    for name, right in sums.items() if isinstance(sums, dict) else ():
        beside = path.with_name(Path(name).name)
        if not beside.is_file():
            raise ChangedFile(f"{beside} is missing: {path.name} has a checksum for it")
        if digest(beside.read_bytes()) != right:
            raise ChangedFile(f"{beside} was altered: {path.name} has another checksum for it")
    return content
