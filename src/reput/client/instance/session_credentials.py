"""SessionCredentials: who asks, and the secret that proves it (`AclClientRPCHook`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from reput.errors import ConfigError
from reput.remoting.acl import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature
from reput.remoting.command import RemotingCommand


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """The user of a client, of ACL 1.0 or 2.0; each of its requests is signed.

        credentials = SessionCredentials("alice", secret)
        async with Producer("127.0.0.1:9876", group="shop", credentials=credentials) as producer:

    Args:
        access_key: The account's access key, or the user's name.
        secret_key: Its secret key, or password; it signs requests, and is in none of them.
        security_token: A token of a token service, if the access key is a temporary one.

    Raises:
        ConfigError: A key is empty, or no text in UTF-8.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name != "security_token"):
                raise ConfigError(f"credentials: {name}: expected a text, not {type(value).__name__}")
            if value == "" or (value is not None and any("\ud800" <= character <= "\udfff" for character in value)):
                raise ConfigError(f"credentials: {name} is {'no text in UTF-8' if value else 'empty'}")

    def sign(self, command: RemotingCommand) -> None:
        """Add access key, token and signature to a request; one that is sent again is signed again."""
        fields = dict(command.ext_fields or {}) | {ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        command.ext_fields = fields | {SIGNATURE: signature(fields, bytes(command.body), self.secret_key)}
