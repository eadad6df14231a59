"""DenoSent's decoder against torch's own layers."""

from __future__ import annotations

import math

import pytest
import torch

from cotbert_core.errors import UserError
from cotbert_core.methods.decoder import Decoder, MemoryAttention, SelfAttention
from tests.core.conftest import torch_weights

SIZE, WIDTH = 8, 20
LENGTHS = (6, 3, 1)


@pytest.fixture(params=[1, 4])
def heads(request):
    return request.param


def make(heads, layers=2, dropout=0.0, size=SIZE):
    """A decoder in float64 whose weights are wide enough for every one of them to matter."""
    torch.manual_seed(0)
    decoder = Decoder(size, layers, heads, WIDTH, dropout).double()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.add_(0.4 * torch.randn_like(weight))
    return decoder


@pytest.fixture
def inputs():
    """Tokens (3, 6, 8), which of them are attended, memory (3, 8)."""
    torch.manual_seed(1)
    attended = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    tokens = torch.randn(len(LENGTHS), max(LENGTHS), SIZE, dtype=torch.float64)
    return tokens, attended, torch.randn(len(LENGTHS), SIZE, dtype=torch.float64)


def test_equals_torchs_decoder_with_a_memory_of_one(heads, inputs, torch_decoder):
    tokens, attended, memory = inputs
    decoder = make(heads).eval()
    twin = torch_decoder(decoder)
    ours, theirs = memory.clone().requires_grad_(), memory.clone().requires_grad_()
    out = decoder(tokens, attended, ours)[attended]
    expected = twin(tokens, theirs[:, None], tgt_key_padding_mask=~attended)[attended]
    torch.testing.assert_close(out, expected)
    assert (out - tokens[attended]).abs().max() > 0.5, "premise: the layers do something"
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad.abs().min() > 0, "premise"
    wanted = {name: p.grad for name, p in twin.named_parameters()}
    found = torch_weights(decoder, lambda weight: weight.grad)
    # Norms and linear layers, a weight and a bias each: all that we have.
    assert len(found) == len(list(decoder.parameters())) == 2 * 18
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name][-len(gradient) :], msg=name)
        assert gradient.abs().max() > 1e-3, name


def test_padding_has_no_influence(heads, inputs):
    tokens, attended, memory = inputs
    decoder = make(heads).eval()
    others = torch.where(attended[..., None], tokens, torch.randn_like(tokens))
    out, changed = (decoder(t, attended, memory)[attended] for t in (tokens, others))
    torch.testing.assert_close(out, changed)
    everywhere = torch.ones_like(attended)
    out, changed = (decoder(t, everywhere, memory)[attended] for t in (tokens, others))
    assert (out - changed).abs().max() > 1e-2, "unmasked it has"


def reader(heads, dropout):
    torch.manual_seed(2)
    part = MemoryAttention(SIZE, heads, dropout).double()
    return part, torch.randn(1, SIZE, dtype=torch.float64)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_of_the_memory_keeps_its_mean(heads, dropout):
    part, memory = reader(heads, dropout)
    exact = part.eval()(memory, 5)
    assert exact.shape == (1, 1, SIZE)
    draws = part.train()(memory, 20000)
    torch.testing.assert_close(draws.mean(dim=1), exact[:, 0], atol=0.03, rtol=0)
    share = (draws - part.outward.bias).abs().amax(dim=-1).lt(1e-9).double().mean().item()
    assert share == pytest.approx(dropout**heads, abs=0.02), "all heads dropped: the bias is left"


def test_each_token_and_head_of_the_memory_is_dropped_by_itself():
    part, memory = reader(2, 0.5)
    draws = part.train()(memory, 400)[0]
    half, value = SIZE // 2, part.value(memory)[0]
    shares = [part.outward.weight[:, at] @ value[at] for at in (slice(half), slice(half, SIZE))]
    possible = {
        (a, b): 2 * a * shares[0] + 2 * b * shares[1] + part.outward.bias
        for a in (0, 1)
        for b in (0, 1)
    }
    distances = torch.stack([(draws - p).abs().amax(dim=-1) for p in possible.values()])
    assert distances.min(dim=0).values.max() < 1e-12, "no other value than these four"
    counts = distances.argmin(dim=0).bincount(minlength=4)
    assert counts.min() > 60, "400 tokens, a quarter each"


@pytest.mark.parametrize("train", [True, False])
def test_memory_dropout_of_zero_or_in_eval_mode_draws_nothing(train):
    part, memory = reader(2, 0.0 if train else 0.5)
    before = torch.get_rng_state()
    out = part.train(train)(memory, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(out[0, 0], part.outward(part.value(memory))[0])


def test_dropout_works_in_training_alone(heads, inputs):
    decoder = make(heads, dropout=0.3)
    one, other = decoder.train()(*inputs), decoder(*inputs)
    assert (one - other).abs().max() > 0.1
    decoder.eval()
    torch.testing.assert_close(decoder(*inputs), make(heads).eval()(*inputs))
    attention = decoder.layers[0].attention.train()
    draws = [attention(inputs[0], inputs[1])[inputs[1]] for _ in range(2)]
    assert (draws[0] - draws[1]).abs().max() > 1e-2, "the attention weights are dropped too"


def test_weights_begin_as_documented():
    torch.manual_seed(0)
    decoder = Decoder(128, 2, 4, 256, 0.1)
    inward = [m.inward.weight for m in decoder.modules() if isinstance(m, SelfAttention)]
    values = [m.value.weight for m in decoder.modules() if isinstance(m, MemoryAttention)]
    bound = math.sqrt(6 / (4 * 128))
    for weight in (*inward, *values):
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    xavier = {id(weight) for weight in (*inward, *values)}
    normal = 0
    for module in decoder.modules():
        if isinstance(module, torch.nn.Linear):
            assert module.bias.abs().max() == 0
            if id(module.weight) not in xavier:
                assert module.weight.std().item() == pytest.approx(0.02, rel=0.03)
                assert module.weight.abs().max() > 0.06, "normal, not uniform"
                normal += 1
    assert normal == 2 * 4


def test_heads_must_divide_the_size():
    with pytest.raises(UserError, match=r"method.heads is 3: it must divide .* hidden size, 8"):
        Decoder(SIZE, 1, 3, WIDTH, 0.0)
