"""The certificate that nobody has signed: OpenSSL takes it, one store keeps one, and only its owner reads the key."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from reput.transport.made_certificate import CERTIFICATE_FILE, made_tls, make_certificate


def test_certificate_and_key_belong_together_and_are_new_each_time() -> None:
    keys = set()
    for _ in range(5):
        pem = make_certificate()
        certificate, key = x509.load_pem_x509_certificate(pem), load_pem_private_key(pem, None)
        assert isinstance(key, EllipticCurvePrivateKey)
        assert isinstance(key.curve, SECP256R1)
        certificate.verify_directly_issued_by(certificate)
        assert certificate.public_key() == key.public_key()
        assert certificate.not_valid_after_utc.year == 9999
        keys.add(key.private_numbers().private_value)
    assert len(keys) == 5


def test_a_folder_keeps_one_certificate_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "config"
    made_tls(str(folder))
    path = folder / CERTIFICATE_FILE
    first = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    made_tls(str(folder))
    assert path.read_bytes() == first
    assert [each.name for each in folder.iterdir()] == [CERTIFICATE_FILE]


@pytest.mark.parametrize("content", [b"", b"no certificate", b"cut"])
def test_a_certificate_that_cannot_be_read_is_made_again(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / CERTIFICATE_FILE
    path.write_bytes(make_certificate()[:300] if content == b"cut" else content)
    with caplog.at_level(logging.WARNING):
        assert made_tls(str(tmp_path)).context is not None
    assert "made again" in caplog.text
    assert b"BEGIN PRIVATE KEY" in path.read_bytes()
