"""Requests in OpenAI's shape: what is read, refused with which sentence, and answered."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from pipelines.serving import requests
from pipelines.serving.requests import RequestError, ServedModel, parse_request, render_answer

MODEL = ServedModel("mine", dimension=4, normalized=True, max_texts=3)


def parsed(**given):
    return parse_request(json.dumps(given).encode(), MODEL)


def test_one_text_and_several():
    one, several = parsed(input="a b", model="mine", user="me"), parsed(input=["", "é"])
    assert (one.texts, one.encoding, one.dimensions) == (["a b"], "float", 4)
    assert several.texts == ["", "é"]
    assert parsed(input="a", encoding_format="base64", dimensions=2).dimensions == 2
    nulls = parsed(input="a", encoding_format=None, dimensions=None, model=None, input_type=None)
    assert nulls == parsed(input="a") == parsed(input="a", input_type="document")


def test_queries_are_read_apart_if_they_have_a_prompt():
    body = json.dumps({"input": "a", "input_type": "query"}).encode()
    assert not parse_request(body, MODEL).queries
    assert parse_request(body, replace(MODEL, query_prompt=True)).queries
    assert not parse_request(b'{"input": "a"}', replace(MODEL, query_prompt=True)).queries


REFUSED = {
    "no JSON": (b"{", "the body is not JSON"),
    "binary": (b"\x80\x00\xff", "it is not UTF-8"),
    "compressed": (gzip.compress(b"{}"), "it is compressed"),
    "nested": (b"[" * 100_000, "nested too deeply"),
    "digits": (b'{"dimensions": ' + b"9" * 5000 + b"}", "value has 5000 digits"),
    "a list": (b"[]", "the body is an empty list: send an object"),
    "nothing": (b"{}", "input is missing or null"),
    "no text": (b'{"input": []}', "input is an empty list"),
    "an object": (b'{"input": {"a": "b"}}', "input is an object"),
    "numbers": (b'{"input": [1, 2]}', r"input\[0\] is a number, and .* does not take token ids"),
    "token ids": (b'{"input": [[1, 2]]}', "does not take token ids"),
    "true": (b'{"input": ["a", true]}', r"input\[1\] is true or false: give a text"),
    "many": (b'{"input": ["a", "b", "c", "d"]}', "4 texts: give at most 3 in one request"),
    "long": (
        json.dumps({"input": ["a", "b" * 1_000_001]}).encode(),
        r"input\[1\] has 1,000,001 characters: give at most 1,000,000 in a text",
    ),
    "surrogate": (b'{"input": "\\ud800"}', "half of a surrogate pair"),
    "format": (b'{"input": "a", "encoding_format": "int8"}', '"int8": give float or base64'),
    "input type": (b'{"input": "a", "input_type": 1}', "input_type is 1: give document or query"),
    "dimensions": (b'{"input": "a", "dimensions": 5}', "dimensions is 5: .* from 1 to 4"),
    "dimensions 0": (b'{"input": "a", "dimensions": 0}', "dimensions is 0"),
    "true dimensions": (b'{"input": "a", "dimensions": true}', "dimensions is true"),
    "field": (b'{"input": "a", "inputs": "b"}', "the field 'inputs' is unknown: give input, model"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_request_is_refused_with_a_sentence(case):
    body, sentence = REFUSED[case]
    with pytest.raises(RequestError, match=sentence) as refused:
        parse_request(body, MODEL)
    assert refused.value.status == 400
    error = refused.value.body()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 400


def test_another_model_is_not_found():
    with pytest.raises(RequestError, match="is not served here: give 'mine'") as refused:
        parsed(input="a", model="x" * 1_000_000)
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert len(refused.value.message) < 400


VECTORS = (np.asarray([[3, 4, 0, 12], [1, 0, 0, 0]]) / [[13], [1]]).astype(np.float32)


def test_an_answer_has_openais_shape_and_every_digit_also_in_base64(monkeypatch):
    rendered, dumps = [], json.dumps
    monkeypatch.setattr(requests.json, "dumps", lambda v: rendered.append(dumps(v)) or rendered[-1])
    answer = json.loads(render_answer(parsed(input=["a", "b"]), VECTORS, 7, MODEL))
    assert {k: v for k, v in answer.items() if k != "data"} == {
        "object": "list",
        "model": "mine",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    vectors = [np.asarray(one.pop("embedding"), np.float32) for one in answer["data"]]
    assert answer["data"] == [{"object": "embedding", "index": index} for index in (0, 1)]
    assert (np.stack(vectors) == VECTORS).all()
    assert max(text.count("[") for text in rendered) == 1, "other threads wait for one vector"
    request = parsed(input=["a", "b"], encoding_format="base64")
    data = json.loads(render_answer(request, VECTORS, 7, MODEL))["data"]
    found = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in data]
    assert (np.stack(found) == VECTORS).all()


def test_fewer_dimensions_have_unit_length_again_if_the_vector_had_it():
    for normalized, expected in ((True, [0.6, 0.8]), (False, [3 / 13, 4 / 13])):
        model, request = replace(MODEL, normalized=normalized), parsed(input="a", dimensions=2)
        (data,) = json.loads(render_answer(request, VECTORS[:1], 7, model))["data"]
        assert np.allclose(data["embedding"], expected)
    answer = json.loads(render_answer(parsed(input=["a", "b"]), 2 * VECTORS, 7, MODEL))
    assert answer["data"][0]["embedding"] == (2 * VECTORS[0]).tolist(), "a whole one stays"
