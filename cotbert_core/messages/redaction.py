"""Removal of credentials from addresses and error texts before they are shown or stored.

`redact` is for texts that a person or MLflow reads; it also hides the secrets of this process's
environment. `without_credentials` only changes addresses: its result is the same on every machine
and in every later run, so it is used for files that a later run compares.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
# Shorter values ("true", "none") occur in any text, and hiding them would hide the message.
SHORTEST_SECRET = 6
_SECRET_VARIABLE = re.compile(
    r"(PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRET|KEY|CREDENTIALS?)$", re.IGNORECASE
)
# The text between // and the last @ before the host. The second form is a password with a slash, a
# question mark or a number sign in it, which database addresses may have; host:5000/ is a port.
_USERINFO = re.compile(r"(?<!/)//(?!/)(?:[^\s/?#]*|[^\s/?#@:]*:(?!\d+[/?#])\S*)@")
# The same in a text that is only an address, which a blank does not end: up to the last @, and up
# to the last @ before a slash.
_ALONE = (
    re.compile(r"(?<!/)//(?!/)([^/?#@:]*:(?!\d+[/?#]).*)@", re.DOTALL),
    re.compile(r"(?<!/)//(?!/)([^/?#]*)@"),
)
# A text before @ without a colon is usually a user name; one of this length is a token.
SHORTEST_TOKEN = 16
_SECRET_NAME = r"(?:token|secret|passw|pwd|key|sig|auth|cred|sas|session)"
# A value ends at a blank or the next option; closing quotes and brackets are not part of it.
_VALUE = r"[^\s&#]*?(?=[&#\s]|['\")\]>,;:.]*(?:\s|$))"
_QUERY = re.compile(rf"([?&;#][\w.%\[\]-]*{_SECRET_NAME}[\w.%\[\]-]*=){_VALUE}", re.IGNORECASE)
# Assignments as database drivers and shells write them.
_ASSIGNED = re.compile(
    r"((?<![\w.-])(?:\w+_)?(?:password|passwd|pwd|secret|access_?key|api_?key|access_token)\s*=\s*)"
    + _VALUE,
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?|\bbearer\s+(?=\S{8}))[^\s'\",}]+",
    re.IGNORECASE,
)


def redact(text: object, environment: Mapping[str, str] | None = None) -> str:
    """Return str(text) with every password, token and key replaced by ***.

    This covers credentials in addresses, authorization headers, and the values of secret variables
    of the environment (default: this process's) anywhere in the text.
    """
    shown = str(text)
    secrets = _secrets(os.environ if environment is None else environment)
    for secret in sorted(secrets, key=len, reverse=True):
        shown = shown.replace(secret, HIDDEN)
    return _without_addresses(shown)


def without_credentials(value: Any) -> Any:
    """Return a JSON value with the credentials of all addresses hidden, including those in keys."""
    if isinstance(value, str):
        return _without_addresses(value)
    if isinstance(value, Mapping):
        return {without_credentials(k): without_credentials(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_credentials(item) for item in value]
    return value


def _without_addresses(text: str) -> str:
    text = _USERINFO.sub(f"//{HIDDEN}@", text)
    for pattern in (_QUERY, _ASSIGNED, _HEADER):
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def _secrets(environment: Mapping[str, str]) -> set[str]:
    """Return the secret values of an environment, and the passwords in its addresses."""
    found = {value for name, value in environment.items() if _SECRET_VARIABLE.search(name)}
    for value in environment.values():
        if "//" in value:
            found.update(_passwords(value))
    found |= {form for secret in found for form in (unquote(secret), quote(secret, safe=""))}
    return {secret for secret in found if len(secret) >= SHORTEST_SECRET}


def _passwords(address: str) -> Iterator[str]:
    """Yield the passwords, tokens and keys of an address, as they are written there."""
    for userinfo in filter(None, (pattern.search(address) for pattern in _ALONE)):
        user, colon, password = userinfo[1].partition(":")
        if colon or len(user) >= SHORTEST_TOKEN:
            yield password if colon else user
    for option in re.split(r"[?&;#]", address)[1:]:
        name, _, value = option.partition("=")
        if re.search(_SECRET_NAME, name, re.IGNORECASE):
            yield value
