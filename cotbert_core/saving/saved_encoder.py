"""The contents of a model folder and its card."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenizers import AddedToken

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import Head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.prefixes import prefix_length
from cotbert_core.encoder.prompts import DOCUMENT, QUERY, prompt_of_template
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.templates.wrapping import BoundTemplate


@dataclass(frozen=True)
class SavedEncoder:
    """An encoder to be saved, with its template in token ids, its pooling and its token limit."""

    backbone: Backbone
    bound: BoundTemplate
    pooling: PoolingConfig
    max_length: int
    head: Head | None = None
    metadata: TrainingMetadata = field(default_factory=TrainingMetadata)

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts of queries and of other texts, by the names that sentence-transformers gives
        them; empty where queries are read like other texts."""
        query, texts = self.pooling.query, self.pooling.template
        if query is None:
            return {}
        others = "" if texts is None else prompt_of_template(texts)
        return {QUERY: prompt_of_template(query), DOCUMENT: others}

    @property
    def in_tokenizer(self) -> BoundTemplate:
        """The template that the folder's tokenizer adds. With prompts it adds none, since it could
        add only one of them."""
        return BoundTemplate.bind(None, self.backbone.tokenizer.hf) if self.prompts else self.bound

    @property
    def early_words(self) -> list[str]:
        """The words that were added to the vocabulary and that a tokenizer.json with the folder's
        normaliser finds before it changes a text."""
        words = self.backbone.tokenizer.added_words
        return [token.content for token in words if not _is_kept(token)]

    @property
    def is_portable(self) -> bool:
        """Whether other libraries can read the folder."""
        return self.not_carried is None

    @property
    def not_carried(self) -> str | None:
        """The reason why sentence-transformers' modules and a tokenizer are not enough, or None."""
        missing = []
        if self.pooling.denoise != "none":
            missing.append("a template's bias is subtracted from its vectors")
        if self.pooling.head == "transform":
            missing.append("its head has a layer norm of the encoder's own epsilon")
        if self.pooling.empty_blank and self.backbone.tokenizer.byte_level:
            missing.append("an empty text gets a blank, which no tokenizer.json can add")
        folded = (" ".join(prompt.split()) == prompt.strip() for prompt in self.prompts.values())
        if self.backbone.tokenizer.byte_level and not all(folded):
            missing.append("a prompt has white space that its tokenizer folds")
        if self.early_words:
            missing.append("a word that was added to its vocabulary is found before texts change")
        if self.pooling.last:
            missing.append("its trained tokens stand where a word of a text occurs last")
        if prefix_length(self.backbone.model):
            missing.append("its layers attend to trained prefixes")
        return " and ".join(missing) or None

    @property
    def not_served(self) -> str | None:
        """The reason why servers with their own pooling would give other vectors, or None."""
        if self.not_carried is not None:
            return self.not_carried
        if self.pooling.readout == "mask":
            return "its vector is read at a mask token"
        if self.prompts.get(DOCUMENT):
            return "its texts have another prompt than its queries"
        return "its vector goes through a head" if self.head is not None else None


def _is_kept(token: AddedToken) -> bool:
    """Return whether a word that was added to a vocabulary is found in normalised texts."""
    return token.normalized and token.content == " ".join(token.content.split())
