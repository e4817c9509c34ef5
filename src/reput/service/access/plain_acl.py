"""Accounts of plain_acl.yml (ACL 1.0): trusted addresses, secrets and permissions (`PlainPermissionManager`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from reput.formats.message import RETRY_TOPIC_PREFIX

_LEAST_TEXT = 6
_ALL = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_Matches = Callable[[str], bool]


class Perm(IntFlag):
    """Permissions of an account for a topic or a group (`Permission`)."""

    DENY = 1
    PUB = 4
    SUB = 8


_FILE_KEYS = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_ACCOUNT_KEYS = (
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
    "groupPerms",
)  # fmt: skip
_PERMS = {"PUB": Perm.PUB, "SUB": Perm.SUB, "PUB|SUB": Perm.PUB | Perm.SUB, "SUB|PUB": Perm.PUB | Perm.SUB}


@dataclass(frozen=True, slots=True)
class Account:
    """One account; `perms` are by topic, and by the retry topic of a group."""

    access_key: str
    secret_key: str = field(repr=False)
    is_white: _Matches
    admin: bool
    default_topic_perm: Perm
    default_group_perm: Perm
    perms: Mapping[str, Perm]

    def why_not(self, topic: str, needed: Perm) -> str | None:
        """Reason why a request for a topic, or for the retry topic of a group, is refused; None if it is not."""
        is_group = topic.startswith(RETRY_TOPIC_PREFIX)
        shown = f"group:{topic.removeprefix(RETRY_TOPIC_PREFIX)}" if is_group else f"topic:{topic}"
        if topic in self.perms:
            return None if self.perms[topic] & needed else f"No permission for {shown}"
        if not self.perms and self.admin:
            return None
        default = self.default_group_perm if is_group else self.default_topic_perm
        return None if default & needed else f"No default permission for {shown}"


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """All accounts by their access key, and the addresses of which nothing is asked.

    `odd` are sentences about what the files say and RocketMQ ignores: an unknown key, or a permission that is none, and
    counts as DENY. They have no secret.
    """

    accounts: Mapping[str, Account]
    white: tuple[_Matches, ...]
    odd: tuple[str, ...] = ()

    def is_white(self, address: str) -> bool:
        """Whether an address is on the global white list."""
        return any(matches(address) for matches in self.white)


def read_plain_acl(contents: Mapping[str, Any]) -> PlainAcl:
    """The accounts of files.

    Args:
        contents: What YAML says, by the name of the file.

    Raises:
        ValueError: A file has something else; the text has its name, and no secret.
    """
    accounts: dict[str, Account] = {}
    white: list[_Matches] = []
    odd: list[str] = []
    for name, content in contents.items():
        if not isinstance(content, dict):
            raise ValueError(f"{name}: expected globalWhiteRemoteAddresses or accounts")
        try:
            white += [address_pattern(str(one)) for one in content.get("globalWhiteRemoteAddresses") or ()]
            for given in content.get("accounts") or ():
                account = _account(given)
                if account.access_key in accounts:
                    raise ValueError(f"account {account.access_key}: is there twice")
                accounts[account.access_key] = account
                odd += [f"{name}: account {account.access_key}: {text}" for text in _odd_of(given)]
            odd += [f"{name}: {text}" for text in _unknown(content, _FILE_KEYS)]
        except (TypeError, AttributeError):
            raise ValueError(f"{name}: expected lists of addresses, and of accounts with their keys") from None
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return PlainAcl(accounts, tuple(white), tuple(odd))


def _unknown(given: Mapping[Any, Any], known: Iterable[str]) -> Iterator[str]:
    """Sentences about keys that nobody reads."""
    for key in given:
        if key not in known:
            yield f"{key!r:.40} is ignored; known keys: {', '.join(known)}"


def _odd_of(given: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what an account says and nobody reads."""
    yield from _unknown(given, _ACCOUNT_KEYS)
    perms = [(key, given[key]) for key in ("defaultTopicPerm", "defaultGroupPerm") if given.get(key) is not None]
    for key in ("topicPerms", "groupPerms"):
        perms += [
            (f"{key}: {name.strip()}", perm)
            for name, _, perm in (str(one).partition("=") for one in given.get(key) or ())
        ]
    for where, perm in perms:
        if not is_perm(str(perm)):
            yield f"{where}: {perm!r:.40} counts as DENY; known permissions: DENY, {', '.join(_PERMS)}"


def _account(given: dict[str, Any]) -> Account:
    access_key, secret_key = str(given.get("accessKey") or ""), str(given.get("secretKey") or "")
    if len(access_key) <= _LEAST_TEXT or len(secret_key) <= _LEAST_TEXT:
        raise ValueError(f"account {access_key!r}: both its keys must have more than {_LEAST_TEXT} characters")
    perms = {}
    for key, prefix in (("topicPerms", ""), ("groupPerms", RETRY_TOPIC_PREFIX)):
        for text in given.get(key) or ():
            resource, equals, perm = str(text).partition("=")
            if not equals:
                raise ValueError(f"account {access_key}: {key}: expected NAME=PUB, found {text!r:.80}")
            perms[prefix + resource.strip()] = perm_of(perm)
    return Account(
        access_key, secret_key, address_pattern(str(given.get("whiteRemoteAddress") or "")),
        str(given.get("admin", False)).lower() == "true",
        perm_of(given.get("defaultTopicPerm")), perm_of(given.get("defaultGroupPerm")), perms,
    )  # fmt: skip


def is_perm(text: str) -> bool:
    """Whether a text is a permission."""
    return text.strip() in (*_PERMS, Perm.DENY.name)


def perm_of(text: object) -> Perm:
    """The permission that a text names; DENY for any other text, as in RocketMQ."""
    return _PERMS.get(str(text).strip(), Perm.DENY)


def address_pattern(text: str) -> _Matches:
    """Function that matches addresses with one of a white list (`RemoteAddressStrategyFactory`).

    `*`; an address; `10.0.0.1,10.0.0.2`; `10.0.0.{1,2}`; `10.0.1-5.*`, and the same of IPv6. The empty text matches
    nothing. Raises ValueError for another one.
    """
    text = text.strip()
    if not text:
        return lambda address: False
    if text in _ALL:
        return lambda address: True
    if text.endswith("}"):
        head, brace, last = text[:-1].partition("{")
        if not brace or not head.endswith((".", ":")):
            raise ValueError(f"address {text!r:.80}: expected a list as the last part, 10.0.0.{{1,2}}")
        text = ",".join(head + one.strip() for one in last.split(","))
    elif "," not in text and ("*" in text or "-" in text):
        return _range(text)
    found = {_parts(_address(one.strip(), text)) for one in text.split(",")}
    return lambda address: _parts_or_none(address) in found


def _range(text: str) -> _Matches:
    """A range or a star for some parts."""
    is_v6 = ":" in text
    base, most, parts = (16, 0xFFFF, text.split(":")) if is_v6 else (10, 0xFF, text.split("."))
    if len(parts) != (8 if is_v6 else 4):
        raise ValueError(f"address {text!r:.80}: expected all parts, as 10.0.1-5.* with four")
    ranges = [_bounds(part.strip(), base, most, text) for part in parts]

    def matches(address: str) -> bool:
        given = _parts_or_none(address)
        if given is None or len(given) != len(ranges):
            return False
        return all(first <= one <= last for one, (first, last) in zip(given, ranges, strict=True))

    return matches


def _bounds(part: str, base: int, most: int, text: str) -> tuple[int, int]:
    if part == "*":
        return 0, most
    first, minus, last = part.partition("-")
    try:
        bounds = int(first, base), int(last if minus else first, base)
    except ValueError:
        bounds = -1, -1
    if not 0 <= bounds[0] <= bounds[1] <= most or not part.isascii():
        raise ValueError(f"address {text!r:.80}: {part!r:.20} is no part of an address, and no range of two")
    return bounds


def _address(one: str, text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(one)
    except ValueError:
        raise ValueError(f"address {text!r:.80}: {one!r:.40} is no address") from None


def _parts(address: IPv4Address | IPv6Address) -> tuple[int, ...]:
    """The four or eight numbers of an address; one of IPv4 in IPv6 has four."""
    plain = getattr(address, "ipv4_mapped", None) or address
    packed = plain.packed
    width = 1 if len(packed) == 4 else 2
    return tuple(int.from_bytes(packed[at : at + width]) for at in range(0, len(packed), width))


def _parts_or_none(address: str) -> tuple[int, ...] | None:
    try:
        return _parts(ip_address(address))
    except ValueError:
        return None
