"""DenoSent's decoder against torch's own layers and against the formula, a token at a time."""

from __future__ import annotations

import math

import pytest
import torch

from cotbert_core.errors import UserError
from cotbert_core.methods.decoder import Decoder, MemoryAttention, SelfAttention

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


def shared_gradients(ours, twin):
    """(ours, torch's) gradient of every weight that both have, by torch's names."""
    pairs = {}
    for number, (layer, other) in enumerate(zip(ours.layers, twin.layers, strict=True)):
        values = other.multihead_attn
        held = {
            "attention.in": (layer.attention.inward, other.self_attn.in_proj_weight.grad),
            "attention.out": (layer.attention.outward, other.self_attn.out_proj.weight.grad),
            "memory.value": (layer.memory.value, values.in_proj_weight.grad[2 * SIZE :]),
            "memory.out": (layer.memory.outward, values.out_proj.weight.grad),
            "linear1": (layer.inward, other.linear1.weight.grad),
            "linear2": (layer.outward, other.linear2.weight.grad),
        }
        biases = {
            "attention.in": other.self_attn.in_proj_bias.grad,
            "attention.out": other.self_attn.out_proj.bias.grad,
            "memory.value": values.in_proj_bias.grad[2 * SIZE :],
            "memory.out": values.out_proj.bias.grad,
            "linear1": other.linear1.bias.grad,
            "linear2": other.linear2.bias.grad,
        }
        norms = (other.norm1, other.norm2, other.norm3)
        for n, (norm, its) in enumerate(zip(layer.norms, norms, strict=True)):
            held[f"norm{n}"] = (norm, its.weight.grad)
            biases[f"norm{n}"] = its.bias.grad
        for name, (part, gradient) in held.items():
            pairs[f"{number}.{name}.weight"] = (part.weight.grad, gradient)
            pairs[f"{number}.{name}.bias"] = (part.bias.grad, biases[name])
    return pairs


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
    pairs = shared_gradients(decoder, twin)
    # Norms and linear layers, a weight and a bias each: all that we have.
    assert len(pairs) == len(list(decoder.parameters())) == 2 * 18
    for name, (found, its) in pairs.items():
        torch.testing.assert_close(found, its, msg=name)
        assert found.abs().max() > 1e-3, name


def slow_linear(part, vector):
    return [
        sum(w * v for w, v in zip(row, vector, strict=True)) + bias
        for row, bias in zip(part.weight.tolist(), part.bias.tolist(), strict=True)
    ]


def slow_norm(part, vector):
    mean = sum(vector) / len(vector)
    variance = sum((v - mean) ** 2 for v in vector) / len(vector)
    scaled = ((v - mean) / math.sqrt(variance + 1e-5) for v in vector)
    return [
        w * v + b for w, v, b in zip(part.weight.tolist(), scaled, part.bias.tolist(), strict=True)
    ]


def slow_attention(part, tokens, heads):
    """Softmax attention over all `tokens`, head by head."""
    projected = [slow_linear(part.inward, token) for token in tokens]
    share = SIZE // heads
    out = []
    for own in projected:
        mixed = []
        for head in range(heads):
            at = slice(head * share, (head + 1) * share)
            key_at, value_at = (slice(at.start + k * SIZE, at.stop + k * SIZE) for k in (1, 2))
            scores = [
                sum(q * k for q, k in zip(own[at], other[key_at], strict=True)) / math.sqrt(share)
                for other in projected
            ]
            weights = [math.exp(s) for s in scores]
            for j in range(value_at.start, value_at.stop):
                values = (w * o[j] for w, o in zip(weights, projected, strict=True))
                mixed.append(sum(values) / sum(weights))
        out.append(slow_linear(part.outward, mixed))
    return out


def slow_layer(layer, tokens, memory, heads):
    """One post-norm layer on the tokens of one sentence, none of which is padding."""
    first, second, third = layer.norms
    read = slow_linear(layer.memory.outward, slow_linear(layer.memory.value, memory))
    out = []
    for token, mixed in zip(tokens, slow_attention(layer.attention, tokens, heads), strict=True):
        token = slow_norm(first, [t + m for t, m in zip(token, mixed, strict=True)])
        token = slow_norm(second, [t + r for t, r in zip(token, read, strict=True)])
        inner = slow_linear(layer.outward, [max(0.0, v) for v in slow_linear(layer.inward, token)])
        out.append(slow_norm(third, [t + i for t, i in zip(token, inner, strict=True)]))
    return out


def test_equals_the_formula_a_sentence_at_a_time(heads, inputs):
    tokens, attended, memory = inputs
    decoder = make(heads, layers=1).eval()
    out = decoder(tokens, attended, memory)
    for row, n in enumerate(LENGTHS):
        slow = slow_layer(decoder.layers[0], tokens[row, :n].tolist(), memory[row].tolist(), heads)
        torch.testing.assert_close(out[row, :n], torch.tensor(slow, dtype=torch.float64))


def test_padding_has_no_influence(heads, inputs):
    tokens, attended, memory = inputs
    decoder = make(heads).eval()
    others = torch.where(attended[..., None], tokens, torch.randn_like(tokens))
    out, changed = (decoder(t, attended, memory)[attended] for t in (tokens, others))
    torch.testing.assert_close(out, changed)
    everywhere = torch.ones_like(attended)
    out, changed = (decoder(t, everywhere, memory)[attended] for t in (tokens, others))
    assert (out - changed).abs().max() > 1e-2, "unmasked it has"


def test_a_later_token_is_seen_by_an_earlier_one(inputs):
    tokens, attended, memory = inputs
    decoder = make(1).eval()
    later = tokens.clone()
    later[:, -1] += 1.0
    change = decoder(later, attended, memory) - decoder(tokens, attended, memory)
    assert change[0, 0].abs().max() > 1e-3, "there is no causal mask"


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
