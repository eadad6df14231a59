"""The Parquet parts of a corpus or of embeddings: FOLDER/data/part-*.parquet.

pandas, pyarrow, polars and DuckDB read FOLDER/data as one table. polars 2.1 refuses a folder with
any file that does not end in .parquet, at any depth, and DuckDB 2.0 reads every Parquet file below
a folder, even hidden ones. So FOLDER/data contains only parts, and the manifest, the result, the
report and held-out documents are in FOLDER.

Earlier versions wrote the parts to FOLDER itself; such folders can be read too.
"""

from __future__ import annotations

from pathlib import Path

# DIGESTS_FOLDER holds a file beside each part of embeddings (pipelines.embedding.digests).
DATA_FOLDER, DIGESTS_FOLDER = "data", "digests"
PARTS = "part-*.parquet"
# The beginning of the name of the first part.
FIRST_PART = "part-000000"
# Files in FOLDER: the rows without a vector, and the records that wait for MLflow or that it has
# refused (pipelines.recording.offline_queue).
SKIPPED_FILE = "skipped.jsonl"
UNTRACKED_FILE, REFUSED_FILE = "untracked.jsonl", "untracked_refused.jsonl"
# The column of embeddings with a list of vectors per row (`cotbert embed --passages`).
PASSAGES_COLUMN = "passages"


def part_files(folder: Path) -> list[Path]:
    """Return the parts of a corpus or of embeddings, in the order of their rows."""
    return sorted((folder / DATA_FOLDER).glob(PARTS)) or sorted(folder.glob(PARTS))


def make_data_folder(folder: Path) -> Path:
    """Create the folder of a job's parts and return it."""
    data = folder / DATA_FOLDER
    data.mkdir(parents=True, exist_ok=True)
    return data
