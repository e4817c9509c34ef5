"""Base of the classes of RocketMQ's configuration: keys with units and bounds, read from mappings and broker.conf.

A field is RocketMQ's key in snake_case, misspellings included. RocketMQ's names lack units: `metadata["unit"]` has
them. The classes are the one table of defaults: a field's default is what counts if nobody names the key, with a
file of keys or without one, and `metadata["rocketmq"]` is what RocketMQ 5.3.3 takes then, and 5.5.1, too. What RocketMQ
has besides is in `rocketmq_keys`: accepted if its value is of its type, and listed as ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self

from reput.config.arguments import an_object_of, check_mapping, check_text, is_of_system, optional
from reput.config.properties import camel_case, read_properties, snake_case
from reput.config.rocketmq_keys import ROCKETMQ_KEYS, UnusedKey
from reput.errors import ConfigError
from reput.formats.java import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN


def config_key(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    minimum: int = 0,
    maximum: int = INT32_MAX,
    frozen: bool = False,
    secret: bool = False,
    local: bool = False,
    may_be_empty: bool = False,
    rocketmq: Any = None,
    name: str = "",
) -> Any:
    """Field for a RocketMQ key. `frozen`: the key fixes the geometry of a store's files and cannot be changed later.

    `secret`: its value is shown nowhere. `local`: no request changes it (`refused_keys`): it names a file, or says who
    may reach the server or do what. `may_be_empty`: an empty text is None, as RocketMQ's default is an empty text.
    `rocketmq`: RocketMQ's default if it is another one, a value or words. `name`: RocketMQ's, if `camel_case` does not
    make it of the field's.
    """
    metadata = {
        "doc": doc, "unit": unit, "minimum": minimum, "maximum": maximum, "frozen": frozen, "secret": secret,
        "local": local or secret, "may_be_empty": may_be_empty, "rocketmq": default if rocketmq is None else rocketmq,
        "name": name,
    }  # fmt: skip
    return field(default=default, metadata=metadata, repr=not secret)


#: What is shown in place of a secret.
STARS = "******"


def shown(key: Field[Any], value: object) -> object:
    """The value of a key as it may be shown: a secret is stars."""
    return STARS if key.metadata["secret"] and value is not None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqConfig:
    """A class of keys; immutable. Each field also accepts text ("4096", "true").

    Raises ConfigError for a value of the wrong type or outside its bounds.
    """

    #: Keys of the other classes, beside `ROCKETMQ_KEYS`.
    OTHER_KEYS: ClassVar[tuple[UnusedKey, ...]] = ()
    #: What the names of keys begin with whose refusals concern the server of this class.
    REFUSES: ClassVar[str] = ""

    ignored: tuple[str, ...] = field(default=())
    """RocketMQ's keys that were given and that this class does not have, but those in `refusals`."""
    refusals: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """... with which nothing starts, and why (`require_startable`)."""
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Keys that a mapping or a broker.conf gave; a value that is not the default is given, too (`is_given`)."""

    def __post_init__(self) -> None:
        kind: Any = self.__class__
        for name, key in keys_of(kind).items():
            object.__setattr__(self, name, _coerce(key, getattr(self, name)))

    def is_given(self, name: str) -> bool:
        """Whether a key (snake_case) was given, and is no default."""
        kind: Any = self.__class__
        return name in self.given or getattr(self, name) != keys_of(kind)[name].default

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """Configuration with other values for keys (snake_case) that were not given."""
        return replace(self, **{name: value for name, value in defaults.items() if not self.is_given(name)})

    def own_defaults(self) -> dict[str, str]:
        """The keys that were not given and whose default is not RocketMQ's, with both defaults as one text."""
        kind: Any = self.__class__
        return {
            camel_case(name): f"{_written(key.default)} (RocketMQ: {_written(key.metadata['rocketmq'])})"
            for name, key in keys_of(kind).items()
            if key.metadata["rocketmq"] != key.default and not self.is_given(name)
        }

    def require_startable(self) -> None:
        """Raise ConfigError, for who would write or serve, if a key asks for what RocketMQ does and reput cannot.

        Who only reads a store may have the file of keys of the broker that wrote it.
        """
        if self.refusals:
            raise ConfigError("; ".join(why for _, why in self.refusals))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], base: Self | None = None) -> Self:
        """Configuration with the given keys, camelCase or snake_case, over `base` (default: the class's defaults).

        Raises ConfigError for a wrong value, and for a name that RocketMQ does not have, with the nearest known name.
        """
        check_mapping("mapping", mapping)
        return cls._from_keys([("", name, value) for name, value in mapping.items()], base)

    @classmethod
    def from_broker_conf(cls, text: str, source: str, base: Self | None = None) -> Self:
        """Configuration of a broker.conf, over `base`; `source` is its name in errors.

        Raises ConfigError with source and line, as `from_mapping` does.
        """
        check_text("text", text)
        check_text("source", source)
        entries = read_properties(text, source)
        return cls._from_keys([(f"{source}:{line}: ", name, value) for line, name, value in entries], base)

    @classmethod
    def _from_keys(cls, keys: list[tuple[str, str, object]], base: Self | None) -> Self:
        """Configuration over `base`; each key is (start of its error messages, name, value)."""
        optional(an_object_of(cls))("base", base)
        changes: dict[str, Any] = {}
        kind: Any = cls
        own, others = keys_of(kind), _others(kind)
        ignored = list(base.ignored) if base else []
        refusals = dict(base.refusals) if base else {}
        for prefix, name, value in keys:
            known = snake_case(name)
            if known in own:
                changes[known] = _coerce(own[known], value, prefix)
            elif known in others:
                other = others[known]
                if other.type:
                    _coerce(_unused_field(other), value, prefix)
                ignored.append(other.name)
                refusals.pop(other.name, None)
                if other.name.startswith(cls.REFUSES) and (why := other.refusal(value)) is not None:
                    refusals[other.name] = prefix + why
            else:
                raise ConfigError(f"{prefix}{_unknown(name, own, others)}")
        changes["given"] = frozenset(changes) | (base.given if base else frozenset())
        changes["ignored"] = tuple(name for name in dict.fromkeys(ignored) if name not in refusals)
        changes["refusals"] = tuple(refusals.items())
        return replace(base, **changes) if base else cls(**changes)


def key_texts(config: RocketmqConfig, kind: Any) -> dict[str, str]:
    """The keys of a class, by RocketMQ's names, and their values as texts of a properties file; secrets are stars."""
    values = {key.name: shown(key, getattr(config, key.name)) for key in keys_of(kind).values()}
    return {camel_case(name): _written(value) for name, value in values.items() if value is not None}


def _written(value: object) -> str:
    """A value as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def keys_of(kind: Any) -> Mapping[str, Field[Any]]:
    """The keys of a class of configuration, by their names in snake_case."""
    return MappingProxyType({key.name: key for key in fields(kind) if key.metadata})


@cache
def _others(kind: Any) -> Mapping[str, UnusedKey]:
    """The keys that a class does not have, by their names in snake_case."""
    own = keys_of(kind)
    others = {snake_case(key.name): key for key in (*kind.OTHER_KEYS, *ROCKETMQ_KEYS.values())}
    return MappingProxyType({name: others[name] for name in others if name not in own})


class TieredStorageLevel(StrEnum):
    """Values of RocketMQ's `tieredStorageLevel`."""

    DISABLE = "DISABLE"
    NOT_IN_DISK = "NOT_IN_DISK"
    NOT_IN_MEM = "NOT_IN_MEM"
    FORCE = "FORCE"


#: A default of each Java type of `ROCKETMQ_KEYS`, and the bounds of numbers.
_JAVA_TYPES: Mapping[str, dict[str, Any]] = {
    "boolean": {"default": False},
    "int": {"default": 0, "minimum": INT32_MIN, "maximum": INT32_MAX},
    "long": {"default": 0, "minimum": INT64_MIN, "maximum": INT64_MAX},
    "double": {"default": 0.0},
    "String": {"default": None, "may_be_empty": True},
    "TieredStorageLevel": {"default": TieredStorageLevel.NOT_IN_DISK},
}


@cache
def _unused_field(key: UnusedKey) -> Field[Any]:
    """The field that an unused key would have, by which its values are checked."""
    made: Field[Any] = config_key(doc=key.effect, name=key.name, **_JAVA_TYPES[key.type])
    return made


def refused_keys(names: Iterable[str], black_list: str, *kinds: Any) -> set[str]:
    """Keys among `names`, in any spelling, that a request may not change; in snake_case.

    Refused are the local keys of the classes, RocketMQ's own that name a file or a folder, and keys of the black list
    (`configBlackList`, separated by semicolons).
    """
    refused = {snake_case(name.strip()) for name in black_list.split(";")}
    for kind in kinds:
        refused.update(name for name, key in keys_of(kind).items() if key.metadata["local"])
        refused.update(name for name in _others(kind) if name.endswith(("_path", "_home")))
    return {snake_case(name) for name in names} & refused


#: Keys that guides to RocketMQ list and none of its versions reads: where their files lie (`StorePathConfigHelper`).
_OF_GUIDES = {
    "store_path_consume_queue": "consumequeue",
    "store_path_index": "index",
    "store_checkpoint": "checkpoint",
    "abort_file": "abort",
}


def _unknown(name: str, own: Mapping[str, Field[Any]], others: Mapping[str, UnusedKey]) -> str:
    if (place := _OF_GUIDES.get(snake_case(name))) is not None:
        return f"unknown configuration key {name!r}: no RocketMQ reads it; it is storePathRootDir/{place}: leave it out"
    spell = snake_case if "_" in name else camel_case
    nearest = nearest_key(name, [*map(spell, own), *(others if "_" in name else [key.name for key in others.values()])])
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"unknown configuration key {name!r}: RocketMQ has none of this name{hint}"


def nearest_key(name: str, names: Iterable[str]) -> str | None:
    """The name that was meant: the first one that begins like it, else the most similar one; the case does not count.

    None if none is similar.
    """
    by_lower_name: dict[str, str] = {}
    for one in names:
        by_lower_name.setdefault(one.lower(), one)
    lower = name.lower()
    begun = [one for one in by_lower_name if lower and one.startswith(lower)]
    found = begun or get_close_matches(lower, by_lower_name, n=1)
    return by_lower_name[found[0]] if found else None


def _coerce(key: Field[Any], value: object, prefix: str = "") -> object:
    """The value as the type of its field, or ConfigError. A broker.conf, a command line and Spark give text."""
    text = value.strip() if isinstance(value, str) else value
    expected: str
    if key.default is None and value is None:
        return None
    if isinstance(key.default, StrEnum):
        kind = type(key.default)
        if text in tuple(kind):
            return kind(str(text))
        expected = " or ".join(kind)
    elif isinstance(key.default, bool):
        if isinstance(text, bool):
            return text
        if isinstance(text, str) and text.lower() in ("true", "false"):
            return text.lower() == "true"
        expected = "true or false"
    elif isinstance(key.default, int):
        minimum, maximum = key.metadata["minimum"], key.metadata["maximum"]
        number = int(text) if isinstance(text, str) and re.fullmatch(r"[+-]?[0-9]{1,19}", text) else text
        if isinstance(number, int) and not isinstance(number, bool) and minimum <= number <= maximum:
            return number
        unit = f" {key.metadata['unit']}" if key.metadata["unit"] else ""
        expected = f"a whole number from {minimum} to {maximum}{unit}"
    elif isinstance(key.default, float):
        if isinstance(text, str | int | float) and not isinstance(text, bool):
            with suppress(ValueError):
                return float(text)
        expected = "a number"
    else:
        if isinstance(text, str) and (text or key.metadata["may_be_empty"]) and is_of_system(text):
            return text or None
        expected = "a text"
    name = key.metadata["name"] or camel_case(key.name)
    text = shown(key, value)
    if isinstance(text, str) and not is_of_system(text):  # a line of a log cannot have it
        text = repr(text)
    raise ConfigError(f"{prefix}{name}={text}: expected {expected}")
