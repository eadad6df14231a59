"""cotbert tokens and cotbert token-map: an encoder's predictions at the mask, and its vocabulary.

They reproduce PromptBERT Table 7 (top tokens with and without template denoising), Figures 1 and 2
(the static token table in two dimensions) and Table 2 (its average cosine).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cotbert_core.encoder.backbone import Backbone, load_backbone, load_tokenizer
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.encoder.pooling_files import load_pooling_config
from cotbert_core.errors import UserError, counted
from cotbert_core.evaluation import anisotropy
from cotbert_core.evaluation.pairs import read_pairs
from cotbert_core.files import atomic_folder, write_json, write_text
from cotbert_core.messages.redaction import without_credentials
from cotbert_core.readouts.mask_predictions import (
    KINDS,
    check_top,
    mask_vectors,
    projection,
    token_kinds,
    token_texts,
    top_tokens,
)
from cotbert_core.readouts.static import begin_words
from cotbert_core.template_search.search import encoder_for
from cotbert_core.templates.template_texts import TEMPLATES, Template, resolve_template
from cotbert_core.templates.tokenizing import SentenceTokenizer, end_with_full_stop
from pipelines.reading.text_files import read_texts
from pipelines.recording import tracking
from pipelines.reports import html_page
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import locked_output
from pipelines.templates.options import TokenMapOptions, TokensOptions
from pipelines.training.dev_sets import BUILT_IN_PAIRS


@dataclass(frozen=True)
class TopTokens:
    """The most likely tokens at a sentence's mask, best first, without and with denoising."""

    sentence: str
    plain: list[str]
    denoised: list[str]


@torch.inference_mode()
def top_tokens_of(options: TokensOptions) -> list[TopTokens]:
    """Return the rows of PromptBERT Table 7; UserError for bad input or a missing MLM head."""
    empty = [number for number, text in enumerate(options.sentences, 1) if not text.strip()]
    if empty:
        raise UserError(f"sentence {empty[0]} is empty: give text or leave it out")
    tokenizer = load_tokenizer(options.encoder)
    check_top(options.top, len(tokenizer.hf))
    template = _template(options, tokenizer)
    backbone = load_backbone(options.encoder)
    encoder, head = encoder_for(backbone, template), load_mlm_head(backbone)
    texts = [end_with_full_stop(" ".join(text.split())) for text in options.sentences]
    ids = tokenizer(texts, encoder.max_length)
    # Without the rows of a padded table, which are no tokens.
    found = [
        top_tokens(
            head(mask_vectors(backbone, encoder.bound, ids, mode))[:, : len(tokenizer.hf)],
            options.top,
        )
        for mode in ("none", options.denoise)
    ]
    plain, denoised = ([_texts(tokenizer, row) for row in rows] for rows in found)
    return [TopTokens(*row) for row in zip(options.sentences, plain, denoised, strict=True)]


def _template(options: TokensOptions, tokenizer: SentenceTokenizer) -> Template:
    if options.template is not None:
        return resolve_template(options.template).require_mask()
    stored: Template | None = load_pooling_config(options.encoder).get("template")
    if stored is not None and stored.stages:
        return stored
    return TEMPLATES["promptroberta/anchor" if tokenizer.byte_level else "promptbert/manual"]


def _texts(tokenizer: SentenceTokenizer, ids: np.ndarray) -> list[str]:
    return token_texts(tokenizer.hf.convert_ids_to_tokens(ids.tolist()), tokenizer.byte_level)


@dataclass(frozen=True)
class TokenCounts:
    name: str
    sentences: int
    dropped: dict[str, int]
    counts: np.ndarray


def token_map(options: TokenMapOptions, output: Path) -> dict[str, Any]:
    """Write the map into the folder `output` and return the result; UserError for bad input."""
    output = require_empty(output)
    tokenizer = load_tokenizer(options.encoder)
    counted = _count(options, tokenizer)
    backbone = load_backbone(options.encoder)
    table, tied = _table(backbone, options.table)
    params = {key: value for key, value in vars(options).items() if value is not None}
    tracked = tracking.tracked_run("token-map", params, output=output)
    with locked_output(output), tracked as run, atomic_folder(output) as folder:
        result = _write_map(folder, options, tokenizer, table, counted, tied)
        result |= {"mlflow_run_id": run.id}
        write_json(folder / RESULT_FILE, result)
        run.result(result)
        for path in sorted(folder.iterdir()):
            run.artifact(path)
    return result


def _count(options: TokenMapOptions, tokenizer: SentenceTokenizer) -> TokenCounts:
    """Return the occurrences of each token in the untruncated corpus, without special tokens."""
    if options.corpus is None:
        pairs = read_pairs(BUILT_IN_PAIRS)
        sentences, dropped = [*pairs.left, *pairs.right], dict[str, int]()
        name = f"the {len(sentences):,} sentences of this package's pairs"
    else:
        texts = read_texts(options.corpus, options.text_column, options.encoding)
        sentences, dropped = texts.sentences, texts.dropped
        corpus = Path(without_credentials(options.corpus))
        name = f"{corpus.name}, {counted(len(sentences), 'sentence')}"
    # Sentences are not truncated, since the encoder does not process them.
    counts = np.bincount(tokenizer(sentences, None).flat)
    return TokenCounts(name, len(sentences), dropped, counts)


def _table(backbone: Backbone, which: str) -> tuple[np.ndarray, bool | None]:
    """Return the (V, D) token vectors, and whether head and input share them (None for input)."""
    words = backbone.model.get_input_embeddings().weight
    if which == "input":
        return words.detach().cpu().numpy(), None
    weight = load_mlm_head(backbone).weight
    tied = weight is words
    if tied:
        say("note: the head shares its weights with the input embeddings, so the map is the same")
    return weight.detach().cpu().numpy(), tied


def _write_map(
    folder: Path,
    options: TokenMapOptions,
    tokenizer: SentenceTokenizer,
    table: np.ndarray,
    counted: TokenCounts,
    tied: bool | None,
) -> dict[str, Any]:
    from pipelines.templates.token_map_plots import token_map as map_plot  # matplotlib: 0.4 s

    kinds = _kinds(tokenizer, len(table))
    shown = np.array([i for i, kind in enumerate(kinds) if kind is not None])
    of_shown = [kind for kind in kinds if kind is not None]
    counts = np.zeros(len(table), np.int64)
    counts[: len(counted.counts)] = counted.counts
    points, shares = projection(table[shown])
    picture = map_plot(points, shares, counts[shown], of_shown, counted.name)
    by_kind = Counter(of_shown)
    numbers: dict[str, Any] = {
        "encoder": options.encoder,
        "table": options.table,
        "tied": tied,
        "tokens": len(table),
        "dimension": table.shape[1],
        "left_out_unused": len(table) - len(shown),
        **{f"kind_{kind}": by_kind[kind] for kind in KINDS},
        "anisotropy": anisotropy(table),
        "variance_first": float(shares[0]),
        "variance_second": float(shares[1]),
        "corpus": counted.name,
        "corpus_sentences": counted.sentences,
        **{f"corpus_dropped_{reason}": n for reason, n in counted.dropped.items()},
        "corpus_tokens": int(counts.sum()),
        "tokens_seen": int((counts[shown] > 0).sum()),
    }
    write_text(folder / "token-map.svg", picture)
    write_json(folder / "token-map.json", numbers)
    write_text(folder / REPORT_FILE, _page(options, numbers, picture))
    return numbers


def _kinds(tokenizer: SentenceTokenizer, size: int) -> list[str | None]:
    """Return the kind of each row's token; None for unused rows and rows without a token."""
    tokens = tokenizer.hf.convert_ids_to_tokens(list(range(min(size, len(tokenizer.hf)))))
    begin = begin_words(tokens, json.loads(tokenizer.json))
    kinds = token_kinds(tokens, begin, tokenizer.byte_level, tokenizer.hf.all_special_tokens)
    return kinds + [None] * (size - len(kinds))


def _page(options: TokenMapOptions, numbers: dict[str, Any], picture: str) -> str:
    what = "MLM head's output weights" if options.table == "head" else "static token embeddings"
    same = " They are tied to the input embeddings." if numbers["tied"] else ""
    note = (
        f"The {what} of {options.encoder} on their two principal components.{same} Anisotropy: "
        f"the average cosine between any two of all {numbers['tokens']:,} rows."
    )
    known = {key: value for key, value in numbers.items() if value is not None}
    lines = [(key, f"{v:.4f}" if isinstance(v, float) else v) for key, v in known.items()]
    sections = [
        ("Map", f'<div class="box">{picture}</div>'),  # it scrolls on a narrow screen
        ("Numbers", html_page.table(("", ""), lines, "text")),
    ]
    return html_page.page("Token map", note, sections)
