"""python -m cluster.hashed_lock REPORT: turn pip's installation report into a list with hashes.

constraints.txt lists versions, and pip accepts any file of a version. A list with hashes accepts
only the files from which it was made. It is valid for one index, platform and Python, so it is made
where it is used (docs/security.md), and `make` does not need it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from pipelines.runtime.progress import say, show


def hashed_lock(report: Mapping[str, Any]) -> str:
    """Return a requirements file for `pip install --require-hashes`, sorted by name.

    The project itself is a folder without a hash and is left out. Raises UserError for an archive
    without a hash.
    """
    lines = []
    for item in report["install"]:
        metadata, source = item["metadata"], item["download_info"]
        if "dir_info" in source:
            continue
        hashes = source.get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise UserError(
                f"{metadata['name']} comes from {source['url']!r} without a SHA-256 hash: install "
                "it from an index or a file"
            )
        lines.append(f"{metadata['name']}=={metadata['version']} --hash=sha256:{hashes['sha256']}")
    return "\n".join(sorted(lines, key=str.lower)) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        say("usage: python -m cluster.hashed_lock REPORT")
        return 2
    try:
        show(hashed_lock(json.loads(Path(arguments[0]).read_text(encoding="utf-8"))), end="")
    except (OSError, ValueError, KeyError) as error:
        say(f"{arguments[0]!r} is not a usable report of pip: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
