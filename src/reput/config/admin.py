"""AdminConfig: who asks on the command line, and how it talks TLS (`tools.yml` and `tls.properties` of RocketMQ)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from reput.config.properties import camel_case, read_properties, snake_case
from reput.config.rocketmq_config import config_key, keys_of, nearest_key
from reput.config.tls import TlsConfig
from reput.errors import ConfigError

__all__ = ["AdminConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(TlsConfig):
    """Keys of a client on the command line; immutable. Of the keys of TLS it uses the client's.

    Raises ConfigError for a value of the wrong type, and for one of the two keys without the other.
    """

    access_key: str | None = config_key(None, "The user's name, or the account's access key.")
    secret_key: str | None = config_key(None, "The password, or the secret key.", secret=True)
    security_token: str | None = config_key(None, "The token of an access key for a time.", secret=True)

    def __post_init__(self) -> None:
        TlsConfig.__post_init__(self)  # no super(): a dataclass with slots is another class than this body's
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("accessKey and secretKey: give both, or neither")
        if self.security_token is not None and self.access_key is None:
            raise ConfigError("securityToken is given, and accessKey is not")

    @classmethod
    def from_properties(cls, text: str, source: str) -> Self:
        """The configuration of a properties file; `source` is its name in errors.

        Raises ConfigError with the source, also for a key that is unknown. No error quotes the text: a name in it may
        be a secret that stands in the wrong place.
        """
        kind: Any = cls
        own = [camel_case(name) for name in keys_of(kind)]
        for line, name, _ in read_properties(text, source):
            if snake_case(name) not in keys_of(kind):
                nearest = nearest_key(name, own)
                hint = f"did you mean {nearest}?" if nearest else "write accessKey=, secretKey=, or a key of TLS"
                raise ConfigError(f"{source}:{line}: unknown key; {hint}")
        try:
            return cls.from_broker_conf(text, source)
        except ConfigError as error:
            raise error if str(error).startswith(source) else ConfigError(f"{source}: {error}") from None
