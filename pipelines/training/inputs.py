"""Check settings, corpus and encoder of a training against each other before a worker starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import absolute_name, model_digest
from cotbert_core.encoder.pooling_files import own_prompt, query_template
from cotbert_core.errors import UserError, counted
from cotbert_core.methods import Method, build_method
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.template_texts import Template
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.sampling import total_steps
from pipelines.runtime.training_capacity import check_capacity
from pipelines.storage.corpus import Corpus, require_texts
from pipelines.training.documents import check_documents, document_notes, rest_length, training_rows
from pipelines.training.sentence_length import cut_notes


def with_absolute_encoders(settings: TrainSettings) -> TrainSettings:
    """Return settings with absolute encoder paths, since workers have other current folders."""
    names = {key: absolute_name(name) for key, name in settings.encoders.items()}
    return override(settings, names)


def encoder_digest(several: Iterable[TrainSettings]) -> str | None:
    """Return a digest of the encoders that runs begin with, by which a continued job is recognised;
    None if all have hub names."""
    names = {name for settings in several for name in settings.encoders.values()}
    found = [digest for name in sorted(names) if (digest := model_digest(name)) is not None]
    return hashlib.sha256("".join(found).encode()).hexdigest()[:16] if found else None


def check_inputs(settings: TrainSettings, corpus: Corpus) -> list[str]:
    """Check settings against corpus and encoder; return notes for the user.

    Raises UserError for any mistake, before a worker starts.
    """
    backbone = load_backbone(settings.encoder, attention=settings.attention)
    corpus.check_tokenizer(settings.encoder, backbone.tokenizer.hash, settings.max_length)
    require_texts(str(corpus.path), corpus.columns, settings.method.needs, settings.method.name)
    if (settings.method.name == "mlm") != ("packed" in corpus.manifest):
        raise UserError(
            f"method {settings.method.name} does not train on the corpus {str(corpus.path)!r}, "
            f"which is {'' if 'packed' in corpus.manifest else 'not '}packed into rows: train mlm "
            "by `cotbert pretrain`, which packs the corpus, and other methods by `cotbert train` "
            "on a corpus that is not packed"
        )
    check_documents(settings, corpus)
    rows = training_rows(settings, corpus)
    if settings.batch_size > rows:
        which = " with another one in their document" if settings.method.from_documents else ""
        what = "packed row" if "packed" in corpus.manifest else "sentence"
        raise UserError(
            f"batch_size is {settings.batch_size} and the corpus {str(corpus.path)!r} has "
            f"{counted(rows, what)}{which}: give a smaller batch_size or more sentences"
        )
    check_capacity(settings)
    check_warmup(settings, total_steps(rows, settings))
    method = build_method(backbone, settings, initialized=False)
    _check_room(method, settings)
    notes = [*cut_notes(settings, corpus), *document_notes(settings, corpus)]
    return [*notes, *_unread_notes(method, settings), *method.notes(corpus.columns)]


def check_warmup(settings: TrainSettings, steps: int | None) -> None:
    """Raise UserError if the warm-up takes all steps of a run; None if their number is not known
    yet."""
    warmup = settings.optimizer.warmup_steps
    if steps is not None and warmup >= steps:
        raise UserError(
            f"optimizer.warmup_steps is {warmup} and the run has {counted(steps, 'step')}: give "
            f"--set optimizer.warmup_steps={steps // 10} or another number below {steps}, or more "
            "steps"
        )


def _unread_notes(method: Method, settings: TrainSettings) -> list[str]:
    """Return a note for each maximum length that is longer than what the saved model reads."""
    limit = method.pooling.max_length
    if limit is None or settings.method.name == "mlm":  # whose rows are not single texts
        return []
    lengths = {"max_length": settings.max_length, "method.rest_length": rest_length(settings) or 0}
    return [
        f"{name} is {length} and the trained encoder reads {limit} tokens of a text: give --set "
        f"{name}={limit} to train on no others"
        for name, length in lengths.items()
        if length > limit
    ]


def _check_room(method: Method, settings: TrainSettings) -> None:
    """Raise UserError if the longest sentence or positive does not fit into the encoder."""
    roles = [r for r in settings.method.template_roles if getattr(settings.templates, r)]
    own, queries = own_prompt(settings.encoder), query_template(settings.encoder)
    _check_length(method, "max_length", settings.max_length, roles, (own, queries))
    if rest := rest_length(settings):
        around = roles[1:2] or roles  # the positive's template, if there is one
        # It is never read as a query.
        _check_length(method, "method.rest_length", rest, around, (own,))


def _check_length(
    method: Method,
    setting: str,
    tokens: int,
    roles: Sequence[str],
    prompts: Sequence[Template | None],
) -> None:
    """Raise UserError if this many tokens do not fit into the encoder with the templates of these
    roles, or with these of the encoder's own."""
    for role in roles:
        bound = BoundTemplate.bind(method.template(role), method.backbone.tokenizer.hf)
        if tokens > _longest(method, bound):
            raise UserError(
                f"templates.{role} takes {bound.length} tokens and {setting} is {tokens}, and the "
                f"encoder takes {method.backbone.max_tokens} tokens in total: give --set "
                f"{setting}={_longest(method, bound)} or less"
            )
    for prompt in prompts:
        plain = BoundTemplate.bind(prompt, method.backbone.tokenizer.hf)
        if tokens > _longest(method, plain):
            besides = f"{plain.length} {'of its prompt' if prompt else 'special ones'}"
            raise UserError(
                f"{setting} is {tokens} and the encoder takes {_longest(method, plain)} tokens "
                f"besides {besides}: give --set {setting} of at most that"
            )


def _longest(method: Method, bound: BoundTemplate) -> int:
    """Return the maximum number of tokens of a sentence that fits into the encoder's template."""
    return method.backbone.max_tokens - bound.length
