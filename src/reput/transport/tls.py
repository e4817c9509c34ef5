"""ClientTls, and how files of certificates become a context of TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reput.config.arguments import check_path, optional
from reput.errors import ConfigError, ReputError

if TYPE_CHECKING:  # importing a client stays light
    from reput.config.tls import TlsConfig

#: What a key without a password is tried with: without any, OpenSSL would ask at the terminal.
_NO_PASSWORD = ""
#: What to do if a plain connection ends before the first answer: a server that takes TLS alone says no more, and the
#: port for slaves neither.
NEVER_ANSWERED = (
    "; if the server takes TLS alone, set tls.enable=true (in a program tls=ClientTls()); "
    "if this is the broker's haListenPort, give its listenPort"
)
#: OpenSSL's numbers (X509_V_ERR_...) for certificates that nobody signed whom the client trusts, and for another name.
_NOT_TRUSTED, _OTHER_NAME = (2, 18, 19, 20, 21), (62, 64)
#: What to do, by the end of OpenSSL's name for an error.
_TO_DO = {
    "WRONG_VERSION_NUMBER": "the server may talk no TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the server may talk no TLS",
    "ALERT_CERTIFICATE_REQUIRED": "name the client's certificate by tls.client.certPath and tls.client.keyPath (in a "
    "program ClientTls(cert_path=..., key_path=...))",
    "ALERT_UNKNOWN_CA": "the server does not know who signs the client's certificate (tls.client.certPath)",
}


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS settings of a client, with its files (PEM).

    Args:
        auth_server: The server's certificate has to be right, and to name the address.
        trust_cert_path: Who signs certificates of servers; without it, whom this machine trusts.
        cert_path: The client's own certificate, for servers that ask for it.
        key_path: The private key for it.
        key_password: The password of this key.

    Raises:
        ConfigError: One of `cert_path` and `key_path` is given without the other; or an argument is of another type.
    """

    auth_server: bool = True
    trust_cert_path: str | None = None
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.auth_server, bool):
            raise ConfigError(f"ClientTls: auth_server {self.auth_server!r}: expected True or False")
        for name in ("trust_cert_path", "cert_path", "key_path"):
            optional(check_path)(f"ClientTls: {name}", getattr(self, name))
        if not isinstance(self.key_password, str | None):
            raise ConfigError(f"ClientTls: key_password: expected a text, not {type(self.key_password).__name__}")
        if (self.cert_path is None) != (self.key_path is None):
            given, missing = ("cert", "key") if self.key_path is None else ("key", "cert")
            raise ConfigError(f"ClientTls: {given}_path is given, and {missing}_path is not")

    @classmethod
    def of(cls, config: TlsConfig) -> ClientTls | None:
        """TLS settings of a server's own requests to other servers, by its keys; None for the plain protocol."""
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
    try:
        context.load_cert_chain(cert_path, key_path, lambda: password or _NO_PASSWORD)
    except ssl.SSLError as error:
        raise ConfigError(_chain_fault(side, cert_path, key_path, password, error)) from None
    except (OSError, ValueError) as error:
        where = f"tls.{side}.certPath={cert_path}, tls.{side}.keyPath={key_path}"
        raise ConfigError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def _chain_fault(side: str, cert_path: str, key_path: str, password: str | None, error: ssl.SSLError) -> str:
    """Key of the configuration that is wrong if OpenSSL refuses a certificate and its key: it names neither."""
    cert, key = content(cert_path) or b"", content(key_path) or b""
    of_cert, of_key = f"tls.{side}.certPath={cert_path}", f"tls.{side}.keyPath={key_path}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{of_key}: not the key of the certificate in {of_cert}"
    if b"CERTIFICATE-----" not in cert:
        return f"{of_cert}: no certificate in PEM"
    if b"PRIVATE KEY-----" not in key:
        return f"{of_key}: no private key in PEM; name the file of the certificate's key"
    if b"ENCRYPTED" in key:
        state = "wrong" if password else "missing"
        return f"{of_key}: the key is encrypted, and its password, tls.{side}.keyPassword, is {state}"
    return f"{of_cert}, {of_key}: no certificate in PEM and the key for it ({why(error)})"


def content(path: str) -> bytes | None:
    """The bytes of a file; None if it cannot be read, while it is replaced, maybe."""
    from reput.files import DISK  # late: importing a client stays light

    try:
        return DISK.read_bytes(path)
    except (OSError, ReputError):
        return None


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
        return error.verify_message.rstrip(".")
    return (error.reason or str(error)).lower().replace("_", " ")


def to_do(error: ssl.SSLError) -> str:
    """Hint on what a client sets after a failed connection of TLS; empty if there is none."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NOT_TRUSTED:
            return "; name who signs it by tls.client.trustCertPath (in a program ClientTls(trust_cert_path=...))"
        return "; take an address that the certificate names" if error.verify_code in _OTHER_NAME else ""
    return next((f"; {text}" for end, text in _TO_DO.items() if (error.reason or "").endswith(end)), "")
