"""Credentials in addresses and error texts, in whatever form they come."""

from __future__ import annotations

import json
import pickle
from itertools import product
from urllib.parse import quote

import pytest

from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import redact, without_credentials

SECRETS = ("S3cretMarker", "p:S3cretMarker", "S3cret'Marker\"", "S3cretMarker=", "%53S3cretMarker")
ADDRESSES = (
    "http://user:{}@host:5000",
    "https://user:{}@host/path?x=1",
    "https://{}@host/repository.git",
    "https://:{}@host",
    "postgresql://user:{}@host/db",
    "postgresql+psycopg2://user:{}/{}@host/db",
    "mysql://user:{}?{}#{}@host/db",
    "sqlite://user:{}@/runs.db",
    "s3://AKIA:{}@bucket/a@b/*.txt?region=eu",
    "s3://bucket/a.txt?region=eu&secret_key={}",
    "https://host/a?token={}",
    "https://host/a?x=1&X-Amz-Signature={}&y=2",
    "https://host/a?sig={}#b",
    "https://host/#access_token={}",
    "http://first:5000,http://user:{}@second:5000",
    "//user:{}@host",
)
SENTENCES = (
    "{}",
    "MLflow at {} did not answer",
    "input '{}' cannot be read (no such file): mend it",
    '("{}", 5)',
    "({}); more",
    "line one\n{}\nline three",
)
KEPT = (
    "http://127.0.0.1:5000/#/experiments/1/runs/ab@cd",
    "models:/name@best at http://host:5000 did not answer",
    "sqlite:////home/someone@work/mlflow.db",
    "file:///home/a@b/c.txt",
    "s3://bucket/folder@2024/part-*.parquet?region=eu&scheme=http",
    'The sentence of "[X]" means [MASK] .',
    "--set tokenizer=x method.layers=3 key=4: unknown",
    "docstrings:numpy,torch hf:NAME:CONFIG /data@home/SICK",
    "write to a:b@c.d, the bearer of bad news",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_credentials_of_an_address_are_left(address):
    for secret, sentence in product(SECRETS, SENTENCES):
        given = address.replace("{}", secret)
        text = sentence.format(given)
        shown = redact(text, {})
        assert "S3cret" in text
        assert "S3cret" not in shown, shown
        assert "***" in shown
        before, after = sentence.split("{}")
        assert shown.startswith(before)
        assert shown.endswith(after[-10:])
        assert "S3cret" not in json.dumps(without_credentials({given: [given, (given, 1)]}))


@pytest.mark.parametrize("text", KEPT)
def test_texts_without_credentials_stay_as_they_are(text):
    assert redact(text, {}) == text
    assert without_credentials([text, None, 1.5, True]) == [text, None, 1.5, True]


@pytest.mark.parametrize(
    "text",
    [
        "{'Authorization': 'Basic S3cretMarker'}",
        "authorization: Bearer S3cretMarker, next",
        "sent Bearer S3cretMarker",
        "connection failed: host=h password=S3cretMarker dbname=d",
        "AWS_SECRET_ACCESS_KEY = S3cretMarker",
    ],
)
def test_headers_and_assignments_of_error_texts_are_hidden(text):
    assert "S3cret" not in redact(text, {})


@pytest.mark.parametrize(
    "name",
    [
        *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "RAY_AUTH_TOKEN", "OPENAI_API_KEY"),
        *("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "my_secret", "GOOGLE_CREDENTIALS"),
    ],
)
@pytest.mark.parametrize("secret", ["sk-S3cret/Marker", "S3cret+ Marker&"])
def test_secrets_of_the_environment_are_hidden_wherever_they_stand(name, secret, monkeypatch):
    monkeypatch.setenv(name, secret)
    for form in (secret, quote(secret, safe="")):
        assert redact(f"refused: x{form}y") == "refused: x***y"
    assert str(UserError(f"the key {secret} is wrong: give another")) == (
        "the key *** is wrong: give another"
    )


@pytest.mark.parametrize(
    ("uri", "password"),
    [
        ("http://user:my S3cret@h:1", "my S3cret"),
        ("http://user:my S3cret@h:1", "my%20S3cret"),
        ("http://user:a@S3cret/b@h:1", "a@S3cret/b"),
        ("postgresql://user:S3cr%40et@h/db", "S3cr@et"),
        ("https://S3cretTokenOf20Signs@h", "S3cretTokenOf20Signs"),
        ("http://h/?token=S3cretMarker", "S3cretMarker"),
    ],
)
def test_a_password_of_an_address_is_hidden_where_it_stands_alone(uri, password):
    """As drivers repeat it in their errors."""
    environment = {"MLFLOW_TRACKING_URI": uri}
    assert redact(f"no user of password {password}.", environment) == "no user of password ***."
    assert password in redact(f"no user of password {password}.", {}), "premise"


def test_short_and_plain_variables_hide_nothing():
    environment = {
        "TOKENIZERS_PARALLELISM": "sentence",
        "X_TOKEN": "true",
        "AWS_ACCESS_KEY_ID": "sentence",
        "PWD": "/data/sentence",
        "MODEL": "https://hub.example/sentence@main",
        "REMOTE": "ssh://sentence@host",
    }
    text = "a true sentence in /data/sentence"
    assert redact(text, environment) == text


def test_an_error_keeps_no_credentials_when_it_travels():
    error = UserError("input 's3://a:S3cretMarker@b' is gone: mend it")
    assert str(error) == "input 's3://***@b' is gone: mend it"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert redact(str(error)) == str(error), "redacting again changes nothing"
