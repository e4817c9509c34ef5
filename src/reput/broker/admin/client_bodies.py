"""Clients and subscriptions as the bodies of answers have them (`Connection`, `SubscriptionData`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reput.remoting.subscription_data import SubscriptionData
from reput.service.client_channels import ClientChannelInfo
from reput.transport.channel import Channel


def connections_body(infos: Iterable[ClientChannelInfo[Channel]]) -> list[dict[str, Any]]:
    """Members of a group as Java writes them (`Connection`)."""
    return [
        {
            "clientAddr": info.channel.remote, "clientId": info.client_id, "language": info.language,
            "version": info.version,
        }
        for info in infos
    ]  # fmt: skip


def subscription_body(one: SubscriptionData) -> dict[str, Any]:
    """A subscription as Java writes it (`SubscriptionData`)."""
    return {
        "classFilterMode": one.class_filter_mode, "codeSet": sorted(one.codes), "expressionType": one.expression_type,
        "subString": one.sub_string, "subVersion": one.sub_version, "tagsSet": sorted(one.tags), "topic": one.topic,
    }  # fmt: skip
