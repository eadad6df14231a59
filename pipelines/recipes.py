"""The training recipes: functions that return settings. `cotbert recipes NAME` prints one.

The STS averages are those of the papers. NLI triples are made by `cotbert prepare --triples`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.errors import unknown
from cotbert_core.settings import ROLES, TrainSettings, override
from pipelines.reading.assignments import assigned, read_config

Recipe = Callable[[], TrainSettings]


def cot_bert_base() -> TrainSettings:
    """Train CoT-BERT on bert-base-uncased as published (STS average 79.40)."""
    return TrainSettings()


def cot_roberta_base() -> TrainSettings:
    """Train CoT-BERT on roberta-base as published (STS average 80.62)."""
    templates = {f"templates.{role}": f"cot-roberta/released/{role}" for role in ROLES}
    return override(cot_bert_base(), {"encoder": "roberta-base", **templates})


def conpvp_base() -> TrainSettings:
    """Train CoT-BERT with ConPVP's loss, without the a(i+,j-) terms (STS average 79.11)."""
    return override(cot_bert_base(), {"method.extended": False})


def promptbert_base() -> TrainSettings:
    """Train PromptBERT on bert-base-uncased, two templates with denoising (STS average 78.54)."""
    return _method("promptbert", "promptbert/anchor", "promptbert/positive")


def promptroberta_base() -> TrainSettings:
    """Train PromptBERT on roberta-base, two templates with denoising (STS average 79.15)."""
    roles = ("promptroberta/released/anchor", "promptroberta/released/positive")
    return override(_method("promptbert", *roles), _PROMPTROBERTA)


def promptbert_supervised() -> TrainSettings:
    """Train PromptBERT on bert-base-uncased and NLI triples (STS average 81.97)."""
    return override(_method("promptbert-supervised", "promptbert/anchor"), _NLI)


def promptroberta_supervised() -> TrainSettings:
    """Train PromptBERT on roberta-base and NLI triples (STS average 82.95)."""
    changes = {**_NLI, **_PROMPTROBERTA, "method.head": "tanh"}
    return override(_method("promptbert-supervised", "promptroberta/released/anchor"), changes)


def optiprompt_base() -> TrainSettings:
    """Train OptiPrompt: a continuous template of a frozen bert-base-uncased (STS average 73.59)."""
    changes = {"optimizer.learning_rate": 3e-5, "epochs": 5, "eval_every": 1000}
    return override(_method("optiprompt", "promptbert/manual"), changes)


def denosent_base() -> TrainSettings:
    """Train DenoSent as in its released code; uses augmented texts (STS average 79.33)."""
    changes = {
        "batch_size": 64,
        # The released code's 32 count [CLS] and [SEP].
        "max_length": 30,
        "max_steps": 5000,
        "eval_every": 50,
        "dev": "sts-b+sick-r",
        "method.inference": "released",
        "optimizer.learning_rate": 4e-5,
        "optimizer.warmup_steps": 500,
        "optimizer.schedule": "constant",
    }
    return override(_method("denosent", "denosent"), changes)


def denosent_paper() -> TrainSettings:
    """Train DenoSent as in its paper: equal weights, temperature 0.03 (STS average 79.33)."""
    changes = {
        "templates.anchor": "denosent/paper",
        "dev": "sts-b",
        "method.contrastive_weight": 1.0,
        "method.generative_weight": 1.0,
        "method.temperature": 0.03,
        "method.target": "original",
        "method.projected": False,
        "optimizer.learning_rate": 5e-5,
        "optimizer.warmup_steps": 0,
    }
    return override(denosent_base(), changes)


def simcse_base() -> TrainSettings:
    """Train SimCSE on bert-base-uncased, [CLS] vectors under dropout (STS average 76.25)."""
    return override(_method("simcse"), {"batch_size": 64, "optimizer.learning_rate": 3e-5})


def simcse_roberta_base() -> TrainSettings:
    """Train SimCSE on roberta-base, [CLS] vectors under dropout (STS average 76.57)."""
    return override(_method("simcse"), {"encoder": "roberta-base", "batch_size": 512})


def simcse_supervised() -> TrainSettings:
    """Train SimCSE on bert-base-uncased and NLI triples (STS average 81.57)."""
    return override(_method("simcse"), {**_NLI, "method.triples": True, "method.keep_head": True})


def promcse_base() -> TrainSettings:
    """Train PromCSE: prefixes of a frozen bert-base-uncased (STS average 78.49)."""
    return override(_method("promcse"), {"optimizer.learning_rate": 3e-2})


def consert_base() -> TrainSettings:
    """Train ConSERT on bert-base-uncased: tokens out of order, features erased (72.74)."""
    budget = {"batch_size": 96, "max_length": 62, "epochs": 10, "eval_every": 200}
    changes = {"optimizer.learning_rate": 5e-7, "dropout": 0.0}
    return override(_method("consert"), budget | changes)


def esimcse_base() -> TrainSettings:
    """Train ESimCSE on bert-base-uncased: repeated tokens and a queue (STS average 78.27)."""
    return override(simcse_base(), {"method.name": "esimcse"})


def arccse_base() -> TrainSettings:
    """Train ArcCSE on bert-base-uncased: an angular margin, and masked texts in order (78.11)."""
    return override(simcse_base(), {"method.name": "arccse"})


def dclr_base() -> TrainSettings:
    """Train DCLR on bert-base-uncased: noise as negatives, SimCSE against false ones (77.22)."""
    simcse = "princeton-nlp/unsup-simcse-bert-base-uncased"
    changes = {"batch_size": 128, "epochs": 3, "dev": "sts-b+sick-r"}
    return override(simcse_base(), {"method.name": "dclr", "method.complement": simcse, **changes})


def diffcse_base() -> TrainSettings:
    """Train DiffCSE on bert-base-uncased, which also replaces the tokens (STS average 78.49)."""
    changes = {"method.name": "diffcse", "optimizer.learning_rate": 7e-6, "epochs": 2}
    return override(simcse_base(), changes)


def rankcse_base() -> TrainSettings:
    """Train RankCSE on bert-base-uncased with two teachers, SimCSE's (STS average 80.36)."""
    teachers = {
        "method.teacher": "princeton-nlp/unsup-simcse-bert-base-uncased",
        "method.second_teacher": "princeton-nlp/unsup-simcse-bert-large-uncased",
    }
    return override(simcse_base(), {"method.name": "rankcse", "batch_size": 128, **teachers})


def pcl_base() -> TrainSettings:
    """Train PCL on bert-base-uncased: eight changed positives, two networks (STS average 78.42)."""
    return override(simcse_base(), {"method.name": "pcl"})


def sncse_base() -> TrainSettings:
    """Train SNCSE on bert-base-uncased, negations as soft negatives (STS average 78.97)."""
    # The released code's 32 tokens count the template and [CLS] and [SEP], which are 10.
    roles = ("promptbert/positive", "promptbert/anchor")
    return override(_method("sncse", *roles), {"max_length": 22})


def tsdae_base() -> TrainSettings:
    """Train TSDAE on bert-base-uncased by sentence-transformers' loss; needs the extra tsdae."""
    changes = {"batch_size": 8, "optimizer.learning_rate": 3e-5, "optimizer.schedule": "constant"}
    return override(_method("tsdae"), changes)


def documents() -> TrainSettings:
    """Train all-MiniLM-L6-v2 on documents: a sentence and the rest of its document."""
    changes = {
        "encoder": "all-MiniLM-L6-v2",
        "templates.anchor": None,
        "method.objective": "contrastive",
        "method.readout": "mean",
        "method.projected": False,
        "method.positive": "rest",
        "optimizer.learning_rate": 3e-5,
        "batch_size": 64,
    }
    return override(_method("denosent", "denosent"), changes)


def mlm_base() -> TrainSettings:
    """Continue the masked language modelling of bert-base-uncased, with `cotbert pretrain`."""
    changes = {"optimizer.learning_rate": 5e-5, "optimizer.weight_decay": 0.01}
    return override(_method("mlm"), {"batch_size": 64, "max_length": 126, **changes})


def mlm_small() -> TrainSettings:
    """Train a new encoder of 4 layers x 256 as a masked language model, with `cotbert pretrain`."""
    changes = {"encoder": "all-MiniLM-L6-v2", "optimizer.learning_rate": 5e-4, "epochs": 10}
    return override(mlm_base(), changes)


def quickstart() -> TrainSettings:
    """Train CoT-BERT on all-MiniLM-L6-v2 for 50 steps: 90 seconds on two CPU cores."""
    changes = {"encoder": "all-MiniLM-L6-v2", "optimizer.learning_rate": 3e-5, "workers": 2}
    budget = {"batch_size": 64, "max_steps": 50, "eval_every": 10}
    return override(cot_bert_base(), changes | budget)


# The released code of PromptBERT on RoBERTa, in whose bias rows positions count from 0.
_PROMPTROBERTA = {"encoder": "roberta-base", "method.pad_positions": "released"}
# The papers' training on NLI triples.
_NLI = {"batch_size": 512, "optimizer.learning_rate": 5e-5, "epochs": 3}


def _method(name: str, *templates: str) -> TrainSettings:
    """Return a method's default settings with these templates: anchor, positive, negative."""
    given = dict(zip(ROLES, templates, strict=False))
    roles = {f"templates.{role}": given.get(role) for role in ROLES}
    return override(cot_bert_base(), {"method.name": name, **roles})


RECIPES: dict[str, Recipe] = {
    recipe.__name__.replace("_", "-"): recipe
    for recipe in (
        *(quickstart, documents, cot_bert_base, cot_roberta_base, conpvp_base),
        *(promptbert_base, promptroberta_base, promptbert_supervised, promptroberta_supervised),
        *(optiprompt_base, denosent_base, denosent_paper),
        *(simcse_base, simcse_roberta_base, simcse_supervised, promcse_base, consert_base),
        *(esimcse_base, arccse_base, dclr_base, diffcse_base, rankcse_base, pcl_base, sncse_base),
        *(tsdae_base, mlm_base, mlm_small),
    )
}


def settings_for(
    recipe: str, config: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]
) -> TrainSettings:
    """Return a recipe's settings, changed by a YAML file, then by --set a.b=value, then by flags.

    flags: flat settings. Raises UserError with a list of all mistakes.
    """
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    return override(RECIPES[recipe](), _changes(config, assignments) | dict(flags))


def changed_paths(config: Path | None, assignments: Sequence[str]) -> set[str]:
    """Return the names of the flat settings in a YAML file and in --set."""
    return set(_changes(config, assignments))


def _changes(config: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    return ({} if config is None else read_config(config)) | assigned(assignments)
