"""The GPU path on a pretended GPU (tests/pretend_gpu.py): devices, dropout, waits, numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pretend_gpu
import pytest
import torch
from pretend_gpu import PretendTensor, inner, pretended_gpu
from torch.nn import functional
from torch.utils import checkpoint as torch_checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from cotbert_core.encoder import attention, forward
from cotbert_core.encoder.backbone import (
    CUDA_BATCH_TOKENS,
    CUDA_START_TOKENS,
    load_backbone,
)
from cotbert_core.encoder.length_batches import padding
from cotbert_core.methods import contrastive, diffcse
from cotbert_core.methods import denosent as denosent_module
from cotbert_core.readouts import FEATURES, build_features
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import override
from cotbert_core.training import devices, distributed
from cotbert_core.training.step import make_optimizer, train_step
from tests.core.method_table import METHODS

WHOLE = attention.unpadded_attention
# One for each place that keeps no activations: the encoder, a decoder, a discriminator.
CHUNKED = ["cot-bert", "denosent", "diffcse"]
ATTENTIONS = ("auto", "eager", "plain", "sdpa", "unpadded")
# Every method whole as padded rows; those that differ most in chunks of packed ones; the other ways
# of attention with one method.
STEPS = [
    *(("auto", name, None) for name in METHODS if name != "cot-bert frozen bias"),
    *(("unpadded", name, 4) for name in (*CHUNKED, "promptbert-supervised")),
    *((way, "cot-bert", None) for way in ATTENTIONS[1:]),
]
# Waits of a step beyond the one for its numbers: transformers asks for the mask of eager and plain
# attention in each forward pass, and of both halves of TSDAE.
STEP_WAITS, MASK_WAITS = 1, {"eager", "plain"}


@pytest.fixture
def gpu(monkeypatch):
    """A pretended GPU, on which packed rows attend one after the other: jagged tensors know no
    tensors but torch's own."""
    monkeypatch.setattr(devices, "_chosen", None)
    monkeypatch.setattr(attention, "unpadded_attention", one_row_after_the_other)
    with pretended_gpu() as made:
        yield made


def one_row_after_the_other(
    module, query, key, value, mask, *, scaling, dropout=0.0, offsets=None, longest=None, **_
):
    if offsets is None:
        return WHOLE(module, query, key, value, mask, scaling=scaling, dropout=dropout)
    assert offsets.device == query.device
    rows = [
        functional.scaled_dot_product_attention(
            *(part[:, :, start:stop] for part in (query, key, value)),
            dropout_p=dropout,
            scale=scaling,
        )
        for start, stop in pairwise(inner(offsets).tolist())
    ]
    assert max(row.shape[2] for row in rows) == longest
    return torch.cat(rows, dim=2).transpose(1, 2), None


def causal_mask(monkeypatch):
    """torch's own causal mask would be a CPU tensor."""
    real = functional.scaled_dot_product_attention

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
        if is_causal:
            attn_mask = query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        return real(query, key, value, attn_mask, dropout_p, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)


def step(method, settings, batch):
    return train_step(method, batch, make_optimizer(method, settings.optimizer), settings, 1, 2)


def gradient(method, settings, batch):
    """The loss, and all gradients of the encoder as one vector on the CPU."""
    loss = method(batch).loss
    loss.backward()
    found = [inner(p.grad).flatten() for p in method.parameters() if p.grad is not None]
    assert torch.cat(found).abs().max() > 1e-3, "premise: there is a gradient"
    return float(inner(loss.detach())), torch.cat(found)


def apart(left, right):
    """The distance of two vectors, relative to the second's length."""
    return float((left - right).norm() / right.norm())


def test_the_pretence_is_one(gpu):
    there, here = torch.ones(3, device="cuda"), torch.ones(3)
    with pytest.raises(RuntimeError, match="all tensors on one device"):
        there + here
    assert type(there * 2) is PretendTensor
    assert there.device == pretend_gpu.CUDA
    state = torch.get_rng_state()
    first, second = (functional.dropout(torch.ones(64, device="cuda")) for _ in "ab")
    assert not torch.equal(inner(first), inner(second))
    assert torch.equal(torch.get_rng_state(), state), "the CPU's stream has moved"
    assert not gpu.waits
    reasons = {
        "_local_scalar_dense": lambda: float(there.sum()),
        "cpu": lambda: there.cpu(),
        "nonzero": lambda: there.nonzero(),
        "index": lambda: there[there > 0],
        "blocking copy": lambda: here.to("cuda", non_blocking=True),
        "index of a CPU tensor": lambda: there[torch.tensor([0])],
    }
    for reason, wait in reasons.items():
        gpu.waits.clear()
        wait()
        assert gpu.waits[reason] == 1, reason
    gpu.waits.clear()
    here.pin_memory().to("cuda", non_blocking=True)
    assert not gpu.waits


@pytest.mark.parametrize(("way", "name", "mini_batch_size"), STEPS)
def test_a_step_has_the_cpus_numbers_and_waits_once(start, monkeypatch, way, name, mini_batch_size):
    changes = {"attention": way, "mini_batch_size": mini_batch_size}
    if name == "tsdae":
        causal_mask(monkeypatch)
        changes["method.deletion"] = 0.0
    expected = step(*start(name, **changes))
    monkeypatch.setattr(devices, "_chosen", None)
    monkeypatch.setattr(attention, "unpadded_attention", one_row_after_the_other)
    with pretended_gpu() as gpu:
        made = start(name, **changes)
        assert {p.device.type for p in made[0].parameters()} == {"cuda"}
        gpu.waits.clear()
        found = step(*made)
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3)
    assert found.parts == pytest.approx(expected.parts, rel=1e-3, abs=1e-7)
    if name != "tsdae" and way not in MASK_WAITS:
        assert gpu.waits.total() == STEP_WAITS, gpu.waits
    assert gpu.waits["blocking copy"] == 0
    assert gpu.waits["cpu"] == 1


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_have_the_gradient_of_the_whole_with_dropout(start, gpu, monkeypatch, name):
    """Whole: the same rows in the same order, all of whose activations are kept."""
    changes = {"dropout": 0.3, "mini_batch_size": 4}
    loss, found = gradient(*start(name, **changes))
    with monkeypatch.context() as patch:
        for module in (forward, denosent_module, diffcse):
            patch.setattr(module, "recomputed", lambda call, *inputs, device: call(*inputs))
        whole_loss, whole = gradient(*start(name, **changes))
    assert loss == whole_loss
    assert apart(found, whole) <= 1e-5
    # As it was: no tensor of the device among the inputs that torch looks at.
    monkeypatch.setattr(torch_checkpoint, "get_device_states", lambda *_: ([], []))
    _, wrong = gradient(*start(name, **changes))
    assert apart(wrong, whole) > 0.01, "premise: other dropout in the second pass shows"


def test_packed_rows_run_at_once(start, gpu, monkeypatch):
    """There is no padding to save, and a batch more is a thousand kernels more."""
    monkeypatch.setattr(contrastive, "CUDA_TRAIN_TOKENS", 64)
    given, real = [], forward._encoder_batch
    monkeypatch.setattr(forward, "_encoder_batch", lambda *a: given.append(a) or real(*a))
    gradient(*start("cot-bert", attention="unpadded"))
    assert len(given) == 1


def test_budgets_fit_wikipedia():
    """Lengths as those of Wikipedia lines: a median of 23 tokens, one in a hundred above 80."""
    drawn = np.random.default_rng(0).lognormal(np.log(23), 0.55, 8192)
    lengths = np.clip(drawn, 3, 200).astype(np.int64)

    def share(budget, start_tokens):
        padded, whole = padding(lengths, budget, start_tokens)
        return padded / whole

    assert share(CUDA_BATCH_TOKENS, CUDA_START_TOKENS) < 0.12 < share(131072, 0)


class Collisions(TorchDispatchMode):
    """most: the additions to one place that an accumulating index_put has made."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "index_put" in func._schema.name and len(args[1]) == 1 and True in args[3:4]:
            self.most = max(self.most, int(inner(args[1][0]).flatten().bincount().max()))
        return func(*args, **(kwargs or {}))


def test_frozen_tokens_add_nothing_to_the_trained_ones(start):
    """A GPU adds to one row in turn: hundreds of frozen tokens went to the first trained one."""
    method, _, batch = start("optiprompt")
    with Collisions() as seen:
        method(batch).loss.backward()
        assert seen.most <= 1
        table, places = torch.zeros(3, 2, requires_grad=True), torch.zeros(50, dtype=torch.long)
        table[places].sum().backward()
    assert seen.most == 50, "premise: such additions are seen"


def test_numbers_of_eight_workers_come_in_one_transfer(gpu, monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 8)
    monkeypatch.setattr(distributed, "_device", lambda: pretend_gpu.CUDA)

    def all_gather(parts, own):
        for number, part in enumerate(parts):
            part.copy_(own + number)

    monkeypatch.setattr(distributed.dist, "all_gather", all_gather)
    own = torch.tensor([1.0, 2.0], device="cuda")
    assert distributed.gather_rows(own) == [[1.0 + n, 2.0 + n] for n in range(8)]
    assert gpu.waits == {"cpu": 1}
    gpu.waits.clear()
    assert distributed.sums([1.0, 2.0, 3.0]) == [36.0, 44.0, 52.0]
    assert gpu.waits["cpu"] == 1
    assert gpu.waits["_local_scalar_dense"] == 0


READINGS = [
    {"readout": "mean"},
    {"readout": "cls"},
    {"template": "cot-bert/anchor"},
    {"template": "cot-bert/anchor", "denoise": "pad"},
    {"template": "cot-bert/anchor", "denoise": "position"},
]


@pytest.mark.parametrize(
    ("pooling", "way"),
    [*((pooling, "auto") for pooling in READINGS), *((READINGS[3], w) for w in ATTENTIONS[1:])],
    ids=str,
)
def test_vectors_are_those_of_the_cpu(bert_folder, sentences, monkeypatch, pooling, way):
    def encode():
        encoder = SentenceEncoder.from_pretrained(bert_folder, attention=way, **pooling)
        return [encoder.encode(sentences, b, precision="fp32") for b in (None, 60)]

    monkeypatch.setattr(devices, "_chosen", None)
    expected = encode()
    monkeypatch.setattr(attention, "unpadded_attention", one_row_after_the_other)
    with pretended_gpu() as gpu:
        encoder = SentenceEncoder.from_pretrained(bert_folder, attention=way, **pooling)
        gpu.waits.clear()
        found = [encoder.encode(sentences, b, precision="fp32") for b in (None, 60)]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)
    assert gpu.waits["cpu"] == 2, "one for the vectors of each call"
    if way not in MASK_WAITS:
        assert gpu.waits.total() == 2, gpu.waits


class Casts(TorchDispatchMode):
    """weights: the casts of square matrices."""

    weights = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        cast = func._schema.name in ("aten::_to_copy", "aten::to")  # `to` in inference mode
        self.weights += cast and args[0].shape == (64, 64)
        return func(*args, **(kwargs or {}))


def test_a_gpu_encodes_in_a_mode_in_which_weights_are_cast_once(
    bert_folder, sentences, monkeypatch
):
    layer, found = torch.nn.Linear(64, 64), []
    for mode in (torch.inference_mode, torch.no_grad):
        with Casts() as casts, mode(), torch.autocast("cpu", torch.bfloat16):
            for _ in range(3):
                layer(torch.ones(1, 64))
        found.append(casts.weights)
    assert found == [3, 1], "premise: autocast keeps cast weights, but not in inference mode"
    monkeypatch.setattr(torch, "inference_mode", None)
    with pretended_gpu():
        SentenceEncoder.from_pretrained(bert_folder, readout="mean").encode(sentences)


@pytest.mark.parametrize("name", FEATURES)
def test_untrained_readouts_are_those_of_the_cpu(
    bert_folder, tmp_path, sentences, monkeypatch, name
):
    if name == "top-tokens":  # it needs a masked-language-model head
        config = AutoConfig.from_pretrained(bert_folder)
        AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
        AutoTokenizer.from_pretrained(bert_folder).save_pretrained(tmp_path)
        bert_folder = str(tmp_path)
    options = {
        "static": FeatureOptions(remove=("frequent", "subwords"), frequent_count=3),
        "top-tokens": FeatureOptions(top_k=5, denoise="position"),
    }.get(name)

    def encode():
        backbone = load_backbone(bert_folder)
        return build_features(name, backbone, options, precision="fp32")(sentences)

    monkeypatch.setattr(devices, "_chosen", None)
    expected = encode()
    with pretended_gpu():
        np.testing.assert_allclose(encode(), expected, atol=2e-6)


def test_a_worker_without_a_gpu_trains_on_the_cpu_beside_one(start, gpu):
    """CUDA is visible, and Ray gave this worker the CPU."""
    devices.use_device("cpu")
    method, settings, batch = start("cot-bert", 0.1)
    assert method.backbone.batch_tokens == load_backbone(settings.encoder).batch_tokens == 1024
    result = step(method, settings, batch)
    assert not any(isinstance(p, PretendTensor) for p in method.parameters())
    assert np.isfinite(result.loss)
    assert not gpu.waits


def test_fp32_on_a_gpu_is_not_tf32(start, gpu):
    step(*start("simcse"))
    assert torch.get_float32_matmul_precision() == "highest"
    method, settings, batch = start("simcse", precision="auto")
    assert override(settings, {"precision": "bf16"}) != settings
    seen = []
    method.encoder.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    step(method, settings, batch)
    assert seen == [True], "auto is bf16 on a GPU of capability 9.0"


@pytest.mark.parametrize(("name", "models"), [("simcse", 1), ("diffcse", 2), ("tsdae", 2)])
def test_models_attend_without_cudnn_on_a_gpu_alone(start, gpu, monkeypatch, name, models):
    """cuDNN makes a new plan for each shape: the first 8,192 lines took 5 s instead of 0.2."""
    causal_mask(monkeypatch)
    for device in ("cuda", "cpu"):
        devices.use_device(device)
        method, settings, batch = start(name)
        seen = {}

        def look(module, *_, seen=seen):
            seen[module] = torch.backends.cuda.cudnn_sdp_enabled()

        for part in method.modules():
            if isinstance(part, PreTrainedModel):
                part.register_forward_hook(look)
        step(method, settings, batch)
        assert len(seen) >= models
        assert set(seen.values()) == {device == "cpu"}
    assert torch.backends.cuda.cudnn_sdp_enabled(), "the choice ends with the pass"
