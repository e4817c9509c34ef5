"""Certificates for tests, made when they run."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

#: The password of encrypted keys. No log and no error may have it.
KEY_PASSWORD = "key-password-of-tests"


@cache
def authority(name: str = "tests") -> trustme.CA:
    """An authority; authorities of other names do not trust it."""
    return trustme.CA(organization_name=name)


@dataclass(frozen=True)
class Files:
    """Paths of a certificate, its key, and the authority that signed it."""

    cert: str
    key: str
    trust: str

    @property
    def server_keys(self) -> dict[str, object]:
        """The configuration of a server that shows this certificate."""
        return {"tls.server.certPath": self.cert, "tls.server.keyPath": self.key}


def write_certificate(
    folder: Path, *names: str, name: str = "server", of: str = "tests", days: int = 30, encrypted: bool = False
) -> Files:
    """A certificate for these hosts (127.0.0.1 without any), by an authority; with negative days it has expired."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    begin, end = now + datetime.timedelta(min(days, 0) - 1), now + datetime.timedelta(days)
    made = authority(of).issue_cert(*(names or ("127.0.0.1",)), not_before=begin, not_after=end)
    files = Files(*(str(folder / f"{name}.{kind}.pem") for kind in ("cert", "key", "trust")))
    Path(files.cert).write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    loaded = load_pem_private_key(made.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(KEY_PASSWORD.encode()) if encrypted else NoEncryption()
    key = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)  # 4.9.7 reads no other form
    Path(files.key).write_bytes(key)
    Path(files.trust).write_bytes(authority(of).cert_pem.bytes())
    return files


def client_context(of: str = "tests", certificate: Files | None = None) -> ssl.SSLContext:
    """A context of Python's own, which trusts an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority(of).configure_trust(context)
    if certificate is not None:
        context.load_cert_chain(certificate.cert, certificate.key)
    return context
