"""Certificate that nobody has signed, for clients of gRPC: those for Go and Java talk TLS if nothing else is set, and
take any certificate. RocketMQ's proxy makes one at each start; this one is made once, and kept with the store.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import secrets

from reput.config.tls import TlsConfig
from reput.errors import ConfigError
from reput.events import Event
from reput.files import DISK, FileLayer
from reput.transport.p256 import CURVE_ORDER, NUMBER_SIZE, public_point, sign
from reput.transport.server_tls import ServerTls

logger = logging.getLogger("reput.transport")

#: Certificate and key in one file, so that they belong together after a crash at any moment.
CERTIFICATE_FILE = "grpcCertificate.pem"

#: Tags of DER.
_INTEGER, _BIT_STRING, _OCTET_STRING, _NAME, _UTF8 = 0x02, 0x03, 0x04, 0x06, 0x0C
_TIME, _SEQUENCE, _SET, _VERSION, _PUBLIC_KEY = 0x18, 0x30, 0x31, 0xA0, 0xA1
#: Names of DER: ecdsa-with-SHA256, ecPublicKey, prime256v1, commonName.
_ECDSA_SHA256, _EC_KEY, _P256, _COMMON_NAME = (
    bytes.fromhex(text) for text in ("2a8648ce3d040302", "2a8648ce3d0201", "2a8648ce3d030107", "550403")
)
#: RFC 5280, 4.1.2.5: a certificate that does not expire.
_BEGIN, _END = b"20200101000000Z", b"99991231235959Z"


def made_tls(folder: str, files: FileLayer = DISK) -> ServerTls:
    """TLS of a server without a certificate, for HTTP/2 alone; the certificate is made at the first time.

    Waits for the disk; a new key takes a tenth of a second.

    Args:
        folder: Where it is kept.
        files: The file layer.

    Raises:
        StoreError: It cannot be kept.
    """
    path = os.path.join(folder, CERTIFICATE_FILE)
    keys = TlsConfig(tls_server_cert_path=path, tls_server_key_path=path)
    if files.exists(path):
        try:
            tls = ServerTls(keys)
        except ConfigError as error:
            logger.warning(Event("the certificate for clients of gRPC is made again", file=path, error=error))
        else:
            logger.info(Event("clients of gRPC are shown a certificate that nobody has signed", file=path))
            return tls
    files.make_directories(folder)
    files.write_atomically(path, make_certificate(), is_private=True)
    logger.info(Event("clients of gRPC are shown a new certificate, which nobody has signed", file=path))
    return ServerTls(keys)


def make_certificate() -> bytes:
    """A certificate in PEM that is signed with its own key, and the key; the key is a new one (P-256)."""
    secret = 1 + secrets.randbelow(CURVE_ORDER - 1)
    point = public_point(secret)
    algorithm = _sequence(_der(_NAME, _ECDSA_SHA256))
    name = _sequence(_der(_SET, _sequence(_der(_NAME, _COMMON_NAME), _der(_UTF8, b"reput"))))
    key_kind = _sequence(_der(_NAME, _EC_KEY), _der(_NAME, _P256))
    signed = _sequence(
        _der(_VERSION, _integer(2)),
        _integer(1 + secrets.randbits(120)),
        algorithm,
        name,
        _sequence(_der(_TIME, _BEGIN), _der(_TIME, _END)),
        name,
        _sequence(key_kind, _bits(point)),
    )
    signature = _sequence(*map(_integer, sign(secret, hashlib.sha256(signed).digest())))
    certificate = _sequence(signed, algorithm, _bits(signature))
    private = _sequence(_integer(1), _der(_OCTET_STRING, secret.to_bytes(NUMBER_SIZE)), _der(_PUBLIC_KEY, _bits(point)))
    key = _sequence(_integer(0), key_kind, _der(_OCTET_STRING, private))
    return _pem("CERTIFICATE", certificate) + _pem("PRIVATE KEY", key)


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    sizes = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(sizes))) + sizes + content


def _sequence(*parts: bytes) -> bytes:
    return _der(_SEQUENCE, b"".join(parts))


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _der(_BIT_STRING, b"\0" + content)


def _pem(kind: str, der: bytes) -> bytes:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n".encode()
