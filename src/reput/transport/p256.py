"""P-256, the elliptic curve of a certificate's key, as far as one signature needs it (FIPS 186-5, SEC 1).

The time that it takes depends on the secret. It runs once in the life of a store, and nobody can ask for it again.
"""

from __future__ import annotations

import secrets

#: Bytes of a coordinate, and of a secret.
NUMBER_SIZE = 32
_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_A = -3

#: A point of the curve; None is the one at infinity.
_Point = tuple[int, int] | None


def public_point(secret: int) -> bytes:
    """The public key of a secret, as SEC 1 writes it without compression."""
    x, y = _base_times(secret)
    return b"\4" + x.to_bytes(NUMBER_SIZE) + y.to_bytes(NUMBER_SIZE)


def sign(secret: int, digest: bytes) -> tuple[int, int]:
    """The signature (r, s) of a digest of 32 bytes."""
    while True:
        once = 1 + secrets.randbelow(CURVE_ORDER - 1)
        r = _base_times(once)[0] % CURVE_ORDER
        s = pow(once, -1, CURVE_ORDER) * (int.from_bytes(digest) + r * secret) % CURVE_ORDER
        if r and s:
            return r, s


def _base_times(factor: int) -> tuple[int, int]:
    product: _Point = None
    for bit in f"{factor:b}":
        product = _sum(product, product)
        if bit == "1":
            product = _sum(product, _BASE)
    assert product is not None  # the factor is between 0 and the curve's order
    return product


def _sum(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _PRIME == 0:
        return None
    if one == other:
        slope = (3 * x1 * x1 + _A) * pow(2 * y1, -1, _PRIME) % _PRIME
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _PRIME) % _PRIME
    x = (slope * slope - x1 - x2) % _PRIME
    return x, (slope * (x1 - x) - y1) % _PRIME
