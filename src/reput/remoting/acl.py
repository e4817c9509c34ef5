"""Signatures of requests (`AclUtils`, `AclSigner`): an access key says who asks, HMAC-SHA1 proves it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
#: A field that clients before 4.9.4 add after they have signed.
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def signature(fields: Mapping[str, str], body: bytes, secret_key: str, *, without: str = SIGNATURE) -> str:
    """The signature of a request: of the values of its fields, sorted by name as Java sorts, and of its body.

    Args:
        fields: The ext fields; `Signature` is left out.
        body: As it is sent.
        secret_key: Of the access key.
        without: Another field that is left out.
    """
    names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    text = "".join(fields[name] for name in names if name not in (SIGNATURE, without))
    digest = hmac.new(
        secret_key.encode("utf-8", "replace"), text.encode("utf-8", "surrogatepass") + body, hashlib.sha1
    ).digest()
    return base64.b64encode(digest).decode()


def is_signed(fields: Mapping[str, str], body: bytes, secret_key: str, *, without: str = SIGNATURE) -> bool:
    """Whether the signature of a request is right; takes as long for a wrong one as for the right one."""
    expected = signature(fields, body, secret_key, without=without)
    return hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode("utf-8", "surrogatepass"))
