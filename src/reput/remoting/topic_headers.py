"""Headers of requests about topics and groups."""

from __future__ import annotations

from dataclasses import dataclass

from reput.remoting.header import Int32


@dataclass(frozen=True, slots=True)
class CreateTopicRequestHeader:
    """A topic to make or to change (UPDATE_AND_CREATE_TOPIC). `attributes`: `+name=value,-name`."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopicRequestHeader:
    """A topic to delete (DELETE_TOPIC_IN_BROKER)."""

    topic: str


@dataclass(frozen=True, slots=True)
class GetTopicConfigRequestHeader:
    """The configuration of a topic (GET_TOPIC_CONFIG)."""

    topic: str


@dataclass(frozen=True, slots=True)
class GetSubscriptionGroupConfigRequestHeader:
    """The configuration of a group (GET_SUBSCRIPTIONGROUP_CONFIG)."""

    group: str


@dataclass(frozen=True, slots=True)
class DeleteSubscriptionGroupRequestHeader:
    """A group to delete (DELETE_SUBSCRIPTIONGROUP)."""

    group_name: str
    clean_offset: bool = False


@dataclass(frozen=True, slots=True)
class UpdateGroupForbiddenRequestHeader:
    """Whether a group may read a topic; without `readable` only asked (UPDATE_AND_GET_GROUP_FORBIDDEN)."""

    group: str
    topic: str
    readable: bool | None = None
