"""cotbert quickstart: run the main job on this machine, without any download.

It adapts all-MiniLM-L6-v2 to the docstrings of installed packages (prepare, candidates on Ray Tune,
scores on held-out documents), and finds the nearest held-out documents for a few queries.
Everything is tracked in MLflow.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.adapting.adapt import adapt
from pipelines.adapting.job_record import CORPUS, MODEL
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.quickstart_page import SHOWN, QuickstartOutcome, summary, write_report
from pipelines.options.jobs import QuickstartOptions
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.reading.parquet_batches import read_table
from pipelines.recording import tracking
from pipelines.runtime.cores import available_cores
from pipelines.runtime.ending import REPORT_FILE, free_folder, places, typed
from pipelines.runtime.progress import clock, print_output
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.training_capacity import gpus_there
from pipelines.storage.output_folder import require_empty

QUERIES = (
    "The result has the same shape as the input.",
    "Raised when the connection to the server is lost.",
    "Compute the eigenvalues of a symmetric matrix.",
    "This feature is deprecated and will be removed.",
)
NEIGHBOURS = 2


def quickstart(output: Path, options: QuickstartOptions | None = None) -> dict[str, Any]:
    """Run the main job into `output` and return its result. options: None for the defaults."""
    options = options or QuickstartOptions()
    output = require_empty(output)
    output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    params = {"packages": options.packages, "steps": options.steps}
    tracked = tracking.tracked_run("quickstart", params, output=output)
    with tracked as run, ray_session(output):
        adapted = adapt(adapt_options(options), output / "adapt", parent=run.key, also=SHOWN)
        found = nearest(output / "adapt" / MODEL, output / "adapt" / CORPUS / HELD_OUT_FILE)
        outcome = QuickstartOutcome(adapted, found)
        seconds = time.monotonic() - started
        result = _result(outcome, seconds, run.id)
        write_report(output, outcome, seconds)
        run.result(result)
        run.artifact(output / REPORT_FILE)
    run.write_result(output, result)
    print_output(summary(outcome))
    print_output(_next_commands(output, seconds))
    return result


def adapt_options(options: QuickstartOptions) -> AdaptOptions:
    """Return the adaptation of the quickstart: few candidates, the first sentences as queries.

    It has two workers of one thread each: beside other work on two cores a step took them 3 to 6 s,
    and one worker of two threads, which wait for each other in every operation, 8 to 20 s. On a
    machine with one GPU it has one worker, which trains on it.
    """
    return AdaptOptions(
        (f"docstrings:{options.packages}",),
        query="first",
        candidates=SHOWN,
        sentences=options.sentences,
        max_steps=options.steps,
        workers=min(2, gpus_there() or available_cores()),
    )


def nearest(model: Path, held_out: Path) -> list[tuple[str, list[tuple[float, str]]]]:
    """Return for each query the closest held-out documents, with their cosines."""
    texts = list(dict.fromkeys(read_table(held_out, ["target"])["target"].to_pylist()))
    encoder = SentenceEncoder.from_pretrained(model)
    queries, documents = (encoder.encode(some, normalize=True) for some in (QUERIES, texts))
    found = []
    for query, cosines in zip(QUERIES, queries @ documents.T, strict=True):
        best = np.argsort(-cosines)[:NEIGHBOURS]
        found.append((query, [(float(cosines[i]), texts[i]) for i in best]))
    return found


def _result(outcome: QuickstartOutcome, seconds: float, run_id: str | None) -> dict[str, Any]:
    adapted = outcome.adapted
    return {
        "encoder": adapted["encoder"],
        "chosen": adapted["chosen"],
        "baseline": adapted["baseline"],
        **{key: adapted["documents"][key] for key in ("documents", "held_out")},
        "sentences": adapted["sentences"],
        "keyword_search": adapted["keyword_search"],
        **outcome.scores(),
        "seconds": round(seconds, 1),
        "mlflow_run_id": run_id,
    }


def _next_commands(output: Path, seconds: float) -> str:
    mlflow = typed(("ui", "--backend-store-uri", tracking.shown_uri()), "mlflow")
    adapt = ("adapt", "YOUR_DOCUMENTS", "--split", "en", "--output", free_folder("runs/mine"))
    words = ("embed", output / "adapt" / MODEL, "--input", "YOUR.txt")
    embed = (*words, "--output", free_folder("runs/vectors"))
    return f"Done in {clock(seconds)}.\n{places(output, adapt, embed)}\n  runs    {mlflow}"
