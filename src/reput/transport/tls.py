"""ClientTls, and how files of certificates become a context of TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reput.errors import ConfigError

if TYPE_CHECKING:  # importing a client stays light
    from reput.config.tls import TlsConfig

#: What a key without a password is tried with: without any, OpenSSL would ask at the terminal.
_NO_PASSWORD = ""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How a client talks TLS, and with which files (PEM).

    Args:
        auth_server: The server's certificate has to be right, and to name the address.
        trust_cert_path: Who signs certificates of servers; without it, whom this machine trusts.
        cert_path: The client's own certificate, for servers that ask for it.
        key_path: The private key for it.
        key_password: The password of this key.
    """

    auth_server: bool = True
    trust_cert_path: str | None = None
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None

    @classmethod
    def of(cls, config: TlsConfig) -> ClientTls | None:
        """What the keys of a server say of its own requests to other servers; None for the plain protocol."""
        if not config.tls_enable:
            return None
        return cls(
            config.tls_client_auth_server, config.tls_client_trust_cert_path, config.tls_client_cert_path,
            config.tls_client_key_path, config.tls_client_key_password,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"ClientTls(auth_server={self.auth_server}, trust_cert_path={self.trust_cert_path!r})"

    def context(self) -> ssl.SSLContext:
        """The context of one connection, of the files as they are now; waits for the disk.

        Raises ConfigError as `ServerTls`.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.auth_server:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.trust_cert_path is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            load_authorities(context, "client", self.trust_cert_path)
        if self.cert_path is not None and self.key_path is not None:
            load_chain(context, "client", self.cert_path, self.key_path, self.key_password)
        return context


def load_chain(context: ssl.SSLContext, side: str, cert_path: str, key_path: str, password: str | None) -> None:
    """Let a context show a certificate; `side` is "server" or "client". Raises ConfigError."""
    where = f"tls.{side}.certPath={cert_path}, tls.{side}.keyPath={key_path}"
    try:
        context.load_cert_chain(cert_path, key_path, lambda: password or _NO_PASSWORD)
    except ssl.SSLError as error:
        reason = why(error)
        to_do = f"an encrypted key needs tls.{side}.keyPassword"
        raise ConfigError(f"{where}: no certificate in PEM and the key for it ({reason}); {to_do}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def load_authorities(context: ssl.SSLContext, side: str, path: str | None) -> None:
    """Let a context trust who signs; raises ConfigError."""
    where = f"tls.{side}.trustCertPath={path}"
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{where}: no certificates in PEM ({why(error)})") from None
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror or error}") from None


def why(error: ssl.SSLError) -> str:
    """The reason of an error of OpenSSL's in plain words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).lower().replace("_", " ")
