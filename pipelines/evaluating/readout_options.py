"""Open the encoder of `cotbert evaluate` with its own readout or an untrained one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.locations import INT8_FOLDER
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.encoder.pooling_files import unread_notes
from cotbert_core.errors import UserError, counted, unknown
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.exporting.int8_graph import RECORD_FILE, has_int8
from cotbert_core.messages.redaction import without_credentials
from cotbert_core.readouts import FEATURES, build_features
from cotbert_core.readouts.options import FeatureOptions, refuse_unused
from cotbert_core.readouts.static import StaticFeatures
from cotbert_core.readouts.top_tokens import TopTokenFeatures
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.template_texts import Template
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.published import published_method
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.progress import say


@dataclass
class OpenReadout:
    """A loaded encoder with its readout.

    encoder: the name from which it was trained, or its own. method: the training method, None if
    unknown. used: the options of the readout, for records.
    """

    encode: EncodeFunctions
    backbone: Backbone
    encoder: str
    readout: str
    template: Template | None = None
    method: str | None = None
    used: dict[str, Any] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the number of sentences in which removal would have left no token."""
        features = self.encode.texts
        if not isinstance(features, StaticFeatures) or "remove" not in self.used:
            return {}
        count = features.kept_whole
        if count:
            keep = "keeps all of its" if count == 1 else "keep all of their"
            say(f"{counted(count, 'sentence')} {keep} tokens: --remove would have left none")
        return {"kept_whole": count}


def check_readout(options: EvaluateOptions) -> None:
    """Raise UserError for an unknown readout and for options that cannot be combined."""
    name = options.readout
    if name is None or name in READOUTS:
        uses = {"template", *({"denoise"} if name in (None, "mask") else ())}
        refuse_unused(name or "encoder's own", feature_options(options), uses)
    elif name in FEATURES:
        refuse_unused(name, feature_options(options), FEATURES[name].uses)
    else:
        raise unknown("readout", name, {*READOUTS, *FEATURES})
    if options.whiten_dimensions is not None and options.whiten is None:
        raise UserError(
            f"whiten_dimensions is {options.whiten_dimensions} and nothing is whitened: give "
            "--whiten FILE or --whiten tasks too"
        )
    given = given_transforms(options)
    if len(given) > 1:
        raise UserError(f"{given[0]} and {given[1]} are both given: give one of them")


def given_transforms(options: EvaluateOptions) -> list[str]:
    """Return the names of the options that transform the vectors."""
    return [name for name in ("whiten", "rank", "flow") if getattr(options, name) is not None]


def feature_options(options: EvaluateOptions) -> FeatureOptions:
    """Return the options of `cotbert_core.readouts`, with defaults."""
    given = {one.name: getattr(options, one.name) for one in fields(FeatureOptions)}
    return FeatureOptions(**{name: value for name, value in given.items() if value is not None})


def open_readout(options: EvaluateOptions, sentences: Sequence[str]) -> OpenReadout:
    """Load the encoder and its readout. sentences: all sentences to score, in which some readouts
    count tokens."""
    model = fetch_model(options.model)
    if options.readout not in FEATURES or options.readout in READOUTS:
        encoder = SentenceEncoder.from_pretrained(
            model, options.template, options.readout, denoise=options.denoise
        )
        encode = encoder.functions(options.precision)
        pooling = encoder.pooling
        name = str((pooling.settings or {}).get("encoder", encoder.backbone.name))
        own = (pooling.readout, pooling.template, published_method(pooling))
        used = _used(options, FeatureOptions())
        return OpenReadout(encode, encoder.backbone, name, *own, used)
    chosen = feature_options(options)
    backbone = load_backbone(model)
    features = build_features(options.readout, backbone, chosen, sentences, options.precision)
    used, template = _used(options, chosen), None
    if isinstance(features, TopTokenFeatures):
        template = features.template
        used["template"] = template.text
    encode, name, readout = EncodeFunctions(features), backbone.name, str(options.readout)
    return OpenReadout(encode, backbone, name, readout, template, None, used)


def scoring_notes(options: EvaluateOptions, encoder: str) -> list[str]:
    """Return notes on what the scores of an opened model leave out. encoder: its NAME."""
    notes = unread_notes(encoder, prompts=options.template is None)
    if has_int8(encoder):
        notes.append(
            f"note: {options.model} is scored in torch, without its int8 graph: what the graph "
            f"costs is in {INT8_FOLDER}/{RECORD_FILE} and in the model card"
        )
    return notes


def _used(options: EvaluateOptions, chosen: FeatureOptions) -> dict[str, Any]:
    """Return the readout's options, flat, for the result and MLflow."""
    names = ("readout", "template", "denoise", "whiten", "whiten_dimensions", "rank", "flow")
    used: dict[str, Any] = {name: getattr(options, name) for name in names}
    if chosen.remove:
        used["remove"] = ",".join(chosen.remove)
    if "frequent" in chosen.remove:
        used["frequent_count"] = chosen.frequent_count
    if options.readout == "top-tokens":
        used |= {"top_k": chosen.top_k, "denoise": chosen.denoise}
    return {key: without_credentials(value) for key, value in used.items() if value is not None}
