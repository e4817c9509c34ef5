"""ServerTls: the certificate of a server, out of files that may be replaced while it runs."""

from __future__ import annotations

import logging
import ssl

from reput.config.tls import ClientAuth, TlsConfig, TlsMode
from reput.errors import ConfigError
from reput.events import Event
from reput.transport.tls import content, load_authorities, load_chain

logger = logging.getLogger("reput.transport")


class ServerTls:
    """The certificate of a server, its key, and the authorities of its clients' certificates.

    Attributes:
        mode: Whether plain connections are taken beside TLS.
        context: For the next connection.
        protocol: What the server names to clients that name it (ALPN); None before `name_protocol`.

    Raises:
        ConfigError: A file cannot be read, or certificate and key do not belong together.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._contents = self._read()
        self.mode = config.tls_server_mode
        self.protocol: str | None = None
        self.context = server_context(config)

    @classmethod
    def of(cls, config: TlsConfig) -> ServerTls | None:
        """TLS settings by these keys; None if the server has no certificate, or is to speak no TLS."""
        is_off = config.tls_server_mode is TlsMode.DISABLED or config.tls_server_cert_path is None
        return None if is_off else cls(config)

    def name_protocol(self, protocol: str) -> None:
        """Name a protocol from now on."""
        self.protocol = protocol
        self.context.set_alpn_protocols([protocol])

    def reload(self) -> None:
        """Take new contents of the files for connections from now on, if they belong together; waits for the disk.

        Files that are wrong, or that are only partly replaced yet, leave everything as it is.
        """
        contents = self._read()
        if contents == self._contents:
            return
        self._contents = contents
        try:
            context = server_context(self._config)
        except ConfigError as error:
            logger.warning(Event("new certificates are not used", error=error))
        else:
            if self.protocol is not None:
                context.set_alpn_protocols([self.protocol])
            self.context = context
            logger.info(Event("new certificates are used", file=self._config.tls_server_cert_path))

    def _read(self) -> tuple[bytes | None, ...]:
        config = self._config
        paths = config.tls_server_cert_path, config.tls_server_key_path, config.tls_server_trust_cert_path
        return tuple(None if path is None else content(path) for path in paths)  # the context says what is wrong


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a server; errors as of `ServerTls`."""
    assert config.tls_server_cert_path is not None
    assert config.tls_server_key_path is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_chain(
        context, "server", config.tls_server_cert_path, config.tls_server_key_path, config.tls_server_key_password
    )
    auth = config.tls_server_need_client_auth
    if auth is not ClientAuth.NONE:
        context.verify_mode = ssl.CERT_REQUIRED if auth is ClientAuth.REQUIRE else ssl.CERT_OPTIONAL
        load_authorities(context, "server", config.tls_server_trust_cert_path)
    return context
