"""cotbert search-template: find the template that gives an untrained encoder the best dev score.

The vector of a sentence is read at the template's last mask. The output folder has settings.json
(written first), templates.jsonl (a line for each scored template), templates.txt and result.json
(written last).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.locations import absolute_name
from cotbert_core.evaluation.pairs import Pairs
from cotbert_core.files import atomic_folder, write_json, write_text
from cotbert_core.template_search.search import encoder_for, score_template, tokenize_pairs
from cotbert_core.templates.template_texts import resolve_template
from pipelines.recording import tracking
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, require_empty
from pipelines.storage.resumable_output import locked_output
from pipelines.templates.options import TemplateSearchOptions
from pipelines.templates.template_candidates import (
    DOUBLE_QUOTED,
    RELATIONS,
    SINGLE_QUOTED,
    STAGES,
    Candidate,
    Lists,
    default_prefixes,
    read_prefixes,
    read_relations,
    read_templates,
)
from pipelines.templates.template_ledger import Score, TemplateLedger, greedy_search, search_table
from pipelines.training.dev_sets import dev_name, dev_pairs, pairs_name

TEMPLATES_FILE = "templates.jsonl"
TABLE_FILE = "templates.txt"
GIVEN = "given"
# Lists of the parts of templates, or whole templates.
Choices = Lists | tuple[str, ...]


def search_template(options: TemplateSearchOptions, output: Path) -> dict[str, Any]:
    """Score templates; return the result and, as `rows`, the scored templates.

    Invalid options raise UserError first.
    """
    output = require_empty(output)  # before the encoder is loaded
    pairs = dev_pairs(options.senteval, options.dev_pairs)
    backbone = load_backbone(options.encoder)
    choices = _choices(options, backbone)
    _check_fit(backbone, choices)
    settings = _settings(options, pairs, choices)
    tracked = tracking.tracked_run("search-template", _params(settings), output=output)
    with locked_output(output), tracked as run, atomic_folder(output) as folder:
        write_json(folder / SETTINGS_FILE, settings)
        tokens = tokenize_pairs(backbone, pairs)

        def score(text: str) -> float:
            return score_template(backbone, tokens, resolve_template(text), options.precision)

        most = _most(choices, options.rounds)
        ledger = TemplateLedger(score, folder / TEMPLATES_FILE, run, most)
        best = _search(ledger, choices, options.rounds)
        if not math.isfinite(ledger.scores[best]):
            raise RuntimeError("every template gives equal cosines for all pairs, so none is best")
        result = _result(settings, ledger, best, run.id)
        write_text(folder / TABLE_FILE, search_table(ledger.rows, best) + "\n")
        run.tags({"best_template": best})
        run.metrics({"best_dev_spearman": result["dev_spearman"]})
        write_json(folder / RESULT_FILE, result)
        for name in (TABLE_FILE, TEMPLATES_FILE, SETTINGS_FILE, RESULT_FILE):
            run.artifact(folder / name)
    return result | {"rows": ledger.rows}


def _search(score: Score, choices: Choices, rounds: int) -> str:
    """Return the text of the best template; the earlier one wins a tie."""
    if isinstance(choices, Lists):
        return greedy_search(score, choices, rounds).text
    return max(choices, key=lambda text: score(text, GIVEN))


def _most(choices: Choices, rounds: int) -> int:
    """Return the maximum number of templates that a search can score."""
    if isinstance(choices, tuple):
        return len(choices)
    start = Candidate()
    relations, prefixes = {*choices.relations, start.relation}, {*choices.prefixes, start.prefix}
    return 1 + rounds * (len(relations) + len(prefixes) - 2)


def _result(
    settings: dict[str, Any], ledger: TemplateLedger, best: str, run_id: str | None
) -> dict[str, Any]:
    return {
        "encoder": settings["encoder"],
        "best_template": best,
        "dev": settings["dev"],
        "dev_spearman": ledger.scores[best],
        "templates": len(ledger.rows),
        "seconds": round(sum(row["seconds"] for row in ledger.rows), 2),
        "mlflow_run_id": run_id,
    }


def _choices(options: TemplateSearchOptions, backbone: Backbone) -> Choices:
    """Return whole templates, or the lists of their parts."""
    if options.templates:
        return read_templates(options.templates)
    quoted = SINGLE_QUOTED if backbone.tokenizer.byte_level else DOUBLE_QUOTED
    return Lists(
        read_relations(options.relations) if options.relations else RELATIONS,
        read_prefixes(options.prefixes) if options.prefixes else default_prefixes(quoted),
    )


def _check_fit(backbone: Backbone, choices: Choices) -> None:
    """Raise UserError for a template that does not fit the encoder, before any is scored."""
    texts: Iterable[str] = choices if isinstance(choices, tuple) else ()
    if isinstance(choices, Lists):  # if each part fits with the longest of the others, all do
        longest = choices.longest(lambda text: len(backbone.tokenizer.hf.tokenize(text)))
        texts = [c.text for stage in STAGES for c in choices.variants(longest, stage)]
    for text in texts:
        encoder_for(backbone, resolve_template(text))


def _settings(options: TemplateSearchOptions, pairs: Pairs, choices: Choices) -> dict[str, Any]:
    """Return the settings of the search, for a file and MLflow."""
    named = "STS-B" if options.senteval is not None else pairs_name(options.dev_pairs)
    common = {
        "encoder": absolute_name(options.encoder),
        "dev": dev_name({named: pairs}),
        "dev_pairs": len(pairs),
        "precision": options.precision,
    }
    if isinstance(choices, tuple):
        return common | {"templates": list(choices)}
    parts = {"relations": list(choices.relations), "prefixes": list(choices.prefixes)}
    return common | {"rounds": options.rounds} | parts


def _params(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for MLflow, lists as their length (their contents are artifacts)."""
    return {k: len(v) if isinstance(v, list) else v for k, v in settings.items()}
