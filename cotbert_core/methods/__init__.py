"""The training methods, which turn a batch into a loss with named parts.

A method is one file here, one settings class in `cotbert_core.method_settings` and one entry in
METHODS. It does not use Ray; it gets the global batch of all workers through
`cotbert_core.training.distributed`.
"""

from __future__ import annotations

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.methods.arccse import ArcCse
from cotbert_core.methods.base import Method, MethodOutput
from cotbert_core.methods.consert import ConSert
from cotbert_core.methods.cot_bert import CotBert
from cotbert_core.methods.dclr import Dclr
from cotbert_core.methods.denosent import DenoSent
from cotbert_core.methods.diffcse import DiffCse
from cotbert_core.methods.esimcse import ESimCse
from cotbert_core.methods.mlm import Mlm
from cotbert_core.methods.optiprompt import OptiPrompt
from cotbert_core.methods.pcl import Pcl
from cotbert_core.methods.promcse import PromCse
from cotbert_core.methods.promptbert import PromptBert, SupervisedPromptBert
from cotbert_core.methods.rankcse import RankCse
from cotbert_core.methods.simcse import SimCse
from cotbert_core.methods.sncse import Sncse
from cotbert_core.methods.tsdae import Tsdae
from cotbert_core.settings import TrainSettings

METHODS: dict[str, type[Method]] = {
    "cot-bert": CotBert,
    "promptbert": PromptBert,
    "promptbert-supervised": SupervisedPromptBert,
    "optiprompt": OptiPrompt,
    "denosent": DenoSent,
    "simcse": SimCse,
    "promcse": PromCse,
    "consert": ConSert,
    "esimcse": ESimCse,
    "arccse": ArcCse,
    "dclr": Dclr,
    "diffcse": DiffCse,
    "rankcse": RankCse,
    "pcl": Pcl,
    "sncse": Sncse,
    "tsdae": Tsdae,
    "mlm": Mlm,
}

__all__ = ["METHODS", "Method", "MethodOutput", "build_method"]


def build_method(
    backbone: Backbone, settings: TrainSettings, *, initialized: bool = True
) -> Method:
    """Return the method that the settings select, with the given encoder.

    initialized: whether to initialize the weights that are new, which takes a second for DenoSent's
    decoder; not needed to check settings, or before a checkpoint is loaded. Raises UserError for
    settings that this encoder does not support.
    """
    method = METHODS[settings.method.name]
    if initialized:
        return method(backbone, settings)
    from transformers.initialization import no_init_weights

    with no_init_weights():
        return method(backbone, settings)
