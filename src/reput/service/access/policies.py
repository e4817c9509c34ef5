"""Choice of the policy entry that decides whether a user may do something (`AclAuthorizationHandler`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from reput.formats.access import Action, Decision, Policies, PolicyEntry, PolicyType, Resource, ResourcePattern
from reput.formats.access import ResourceType as Type


class Need(NamedTuple):
    """Need of a request: one of `actions` on a resource."""

    resource_type: Type
    name: str
    actions: tuple[Action, ...]

    @property
    def key(self) -> str:
        """As remarks name the resource."""
        return f"{self.resource_type.text}:{self.name}"

    @property
    def asked(self) -> str:
        """The right and the resource, for who does not see in his request what was found."""
        return f"{' or '.join(one.text for one in self.actions)} of {self.key}"


def decide(policies: Policies, need: Need, source_ip: str) -> Decision | None:
    """Decision of a user's policies; None if nothing matches, which is no.

    Of the entries that match, CUSTOM goes before DEFAULT; a name before a prefix, a longer prefix
    before a shorter one, a prefix before all; DENY before ALLOW.
    """
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        matching = [one for one in policies.get(kind, ()) if _matches(one, need, source_ip)]
        if matching:
            return min(matching, key=_rank).decision
    return None


def _matches(entry: PolicyEntry, need: Need, source_ip: str) -> bool:
    return (
        _is_resource(entry.resource, need)
        and (Action.ALL in entry.actions or not set(entry.actions).isdisjoint(need.actions))
        and (not entry.source_ips or _is_within(source_ip, entry.source_ips))
    )


def _is_resource(resource: Resource, need: Need) -> bool:
    if resource.resource_type is Type.ANY:
        return True
    if resource.resource_type is not need.resource_type:
        return False
    name = resource.resource_name or ""
    if resource.resource_pattern is ResourcePattern.LITERAL:
        return name == need.name
    return resource.resource_pattern is ResourcePattern.ANY or need.name.startswith(name)


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    resource = entry.resource
    order = (ResourcePattern.LITERAL, ResourcePattern.PREFIXED, ResourcePattern.ANY).index(resource.resource_pattern)
    longest = -len(resource.resource_name or "")
    return resource.resource_type is Type.ANY, order, longest, entry.decision is Decision.ALLOW


def _is_within(source_ip: str, networks: Iterable[str]) -> bool:
    try:
        address = ip_address(source_ip)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in _network(one) for one in networks)


@lru_cache(maxsize=1024)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)
