"""TlsConfig: the `tls.*` keys, which broker and name server share (`TlsSystemConfig`).

RocketMQ reads them from /etc/rocketmq/tls.properties and from system properties; here they stand beside the other keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reput.config.rocketmq_config import RocketmqConfig, config_key, keys_of
from reput.errors import ConfigError


class TlsMode(StrEnum):
    """Mode of TLS in a server: refused, taken beside the plain protocol, or required."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a server asks clients for a certificate, and whether one without is refused."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig(RocketmqConfig):
    """Keys of TLS; immutable. All are local; RocketMQ reads them from files that no request changes."""

    tls_server_mode: TlsMode = config_key(
        TlsMode.PERMISSIVE,
        "permissive takes TLS and plain connections on one port, once there is a certificate.",
        local=True,
    )
    tls_server_cert_path: str | None = config_key(None, "The server's certificate and its chain (PEM).", local=True)
    tls_server_key_path: str | None = config_key(None, "The private key for it (PEM).", local=True)
    tls_server_key_password: str | None = config_key(None, "The password of this key.", secret=True)
    tls_server_need_client_auth: ClientAuth = config_key(
        ClientAuth.NONE, "require: clients need a certificate; optional: one that is shown has to be right.", local=True
    )
    tls_server_trust_cert_path: str | None = config_key(None, "Who signs certificates of clients (PEM).", local=True)
    tls_enable: bool = config_key(False, "Talk TLS to name servers, and as a slave to the master.", local=True)
    tls_client_auth_server: bool = config_key(
        True, "The certificate of such a server has to be right, and to name it.", rocketmq=False, local=True
    )
    tls_client_trust_cert_path: str | None = config_key(
        None, "Who signs certificates of these servers (PEM); without it, whom this machine trusts.", local=True
    )
    tls_client_cert_path: str | None = config_key(
        None, "The certificate that these servers are shown (PEM).", local=True
    )
    tls_client_key_path: str | None = config_key(None, "The private key for it (PEM).", local=True)
    tls_client_key_password: str | None = config_key(None, "The password of this key.", secret=True)

    def __post_init__(self) -> None:
        RocketmqConfig.__post_init__(self)  # no super(): a dataclass with slots is another class than this body's
        for side in ("server", "client"):
            cert, key = (getattr(self, f"tls_{side}_{name}_path") for name in ("cert", "key"))
            if (cert is None) != (key is None):
                given, missing = ("cert", "key") if key is None else ("key", "cert")
                raise ConfigError(f"tls.{side}.{given}Path is given, and tls.{side}.{missing}Path is not")
        if self.tls_server_mode is TlsMode.ENFORCING and self.tls_server_cert_path is None:
            raise ConfigError("tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath")
        if self.tls_server_need_client_auth is not ClientAuth.NONE and self.tls_server_trust_cert_path is None:
            auth = self.tls_server_need_client_auth
            raise ConfigError(f"tls.server.need.client.auth={auth} needs tls.server.trustCertPath")

    @property
    def tls_values(self) -> dict[str, Any]:
        """The keys of this class and their values, for another server in the same process."""
        return {name: getattr(self, name) for name in keys_of(TlsConfig)}
