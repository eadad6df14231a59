"""The candidates of `cotbert adapt`: ways of training, all with the same budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.pooling_files import own_prompt, readable_pooling
from cotbert_core.errors import UserError
from cotbert_core.settings import ROLES, TrainSettings, override
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.templates.wrapping import BoundTemplate
from pipelines.adapting.options import CANDIDATES, SENTENCE_TOKENS, AdaptOptions
from pipelines.storage.corpus import Corpus
from pipelines.training.documents import rest_length
from pipelines.training.inputs import check_inputs

# Tokens of a positive that is the rest of a document. A film review has 270, a docstring 60: twice
# as many tokens cost twice the time of a step.
REST_LENGTH = 128
# Checks in a training: the rungs of successive halving are at the first and the third.
CHECKS = 6

# The templates of a method, for encoders with BERT's and with RoBERTa's special tokens.
_TEMPLATES = {
    "cot-bert": ("cot-bert", "cot-roberta"),
    "promptbert": ("promptbert", "promptroberta"),
}


def candidates(options: AdaptOptions, encoder: str, readout: str) -> dict[str, TrainSettings]:
    """Return the settings of each candidate by its name.

    encoder: the folder or NAME to start from. readout: mean or cls, by which methods without a
    template read the encoder; the one that scores best before training.
    """
    budget = {
        "encoder": encoder,
        "dev": "own",
        "seed": options.seed,
        "workers": options.workers,
        "batch_size": options.batch_size,
        "max_steps": options.max_steps,
        "eval_every": check_every(options.max_steps),
        "max_length": SENTENCE_TOKENS,
        "optimizer.learning_rate": options.learning_rate,
    }
    backbone = load_backbone(encoder)
    found = {}
    for name in options.chosen:
        method = _method(name, readout, roberta=backbone.tokenizer.hf.mask_token == "<mask>")
        found[name] = _fitted(override(TrainSettings(), {**budget, **method}), backbone)
    return found


def supported(
    settings: Mapping[str, TrainSettings], corpus: Corpus, *, named: bool
) -> tuple[dict[str, TrainSettings], list[str]]:
    """Return the candidates that can be trained, and notes for the user, each once.

    One that the encoder does not support is left out with a note. Raises UserError for it instead
    if the user named the candidates, or if all of them are refused.
    """
    notes, refused = list[str](), dict[str, UserError]()
    for name, one in settings.items():
        try:
            notes += map(_without_set, check_inputs(one, corpus))
        except UserError as error:
            refused[name] = UserError(_without_set(str(error)))
            if named:
                raise refused[name] from None
    if len(refused) == len(settings):
        raise next(iter(refused.values()))
    notes += [f"candidate {name} is left out: {error}" for name, error in refused.items()]
    usable = {name: one for name, one in settings.items() if name not in refused}
    return usable, list(dict.fromkeys(notes))


def _without_set(text: str) -> str:
    """Return a note or error about settings without its advice, for adapt has no option --set."""
    return re.sub(r"[;:] give --set .*", "", text)


def check_every(steps: int) -> int:
    """Return the number of steps between dev checks, also the first rung of successive halving."""
    return max(1, -(-steps // CHECKS))


def _method(name: str, readout: str, *, roberta: bool) -> dict[str, Any]:
    """Return the settings of a candidate's method, flat."""
    changes = dict(CANDIDATES[name])
    method = changes["method.name"]
    if method not in _TEMPLATES:
        changes |= {"method.readout": readout}
        if method == "denosent":
            changes |= {"method.projected": False}
        return {**dict.fromkeys(f"templates.{role}" for role in ROLES), **changes}
    family = _TEMPLATES[method][roberta]
    used = ROLES if method == "cot-bert" else ROLES[:2]
    templates = {f"templates.{r}": f"{family}/{r}" if r in used else None for r in ROLES}
    return {**templates, **changes}


def _fitted(settings: TrainSettings, backbone: Backbone) -> TrainSettings:
    """Return the settings with the length of a document's rest, as far as the encoder reads it."""
    if rest_length(settings) is None:
        return settings
    text = settings.templates.positive
    template = resolve_template(text) if text else own_prompt(settings.encoder)
    taken = BoundTemplate.bind(template, backbone.tokenizer.hf).length
    read = readable_pooling(settings.encoder).get("max_length") or REST_LENGTH
    length = max(1, min(REST_LENGTH, backbone.max_tokens - taken, read))
    return override(settings, {"method.rest_length": length})
