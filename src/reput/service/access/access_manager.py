"""AccessManager: users and policies in memory and in their file (`AuthenticationMetadataManagerImpl` and its like)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from reput.errors import CorruptMetadataError, RemotingCommandError
from reput.files import FileLayer
from reput.formats.access import (
    ACCESS_FILE,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserType,
    decode_access,
    encode_access,
)
from reput.remoting.codes import ResponseCode

_NOBODY = "The user is not exist"


class AccessManager:
    """Users and their policies. A change is on the disk before it counts.

    Each method that changes something waits for the disk; one thread at a time calls them, others read meanwhile.

    Args:
        root: The store directory.
        files: The file layer.

    Attributes:
        users: By name.
        acls: Policies by the name of their user.

    Raises:
        CorruptMetadataError: The file cannot be read.
    """

    def __init__(self, root: str, files: FileLayer) -> None:
        self._path = os.path.join(root, "config", ACCESS_FILE)
        self._files = files
        self.users: dict[str, User] = {}
        self.acls: dict[str, Policies] = {}
        if files.exists(self._path):
            try:
                self.users, self.acls = decode_access(files.read_bytes(self._path))
            except ValueError as error:
                raise CorruptMetadataError(self._path, 0, str(error)) from None

    def _keep(self, users: dict[str, User], acls: dict[str, Policies]) -> None:
        self._files.make_directories(os.path.dirname(self._path))
        self._files.write_atomically(self._path, encode_access(users, acls), is_private=True)
        self._files.sync_directory(os.path.dirname(self._path))
        self.users, self.acls = users, acls

    # -- users

    def create_first(self, users: Iterable[tuple[User, Policies]]) -> list[str]:
        """Make the users of the configuration with their policies; the names of those that were not there."""
        new: dict[str, User] = {}
        acls: dict[str, Policies] = {}
        for user, policies in users:
            if user.username not in self.users and user.username not in new:
                new[user.username] = user
                acls |= {user.username: policies} if policies else {}
        if new:
            self._keep(self.users | new, self.acls | acls)
        return list(new)

    def create_user(self, user: User, by: str) -> None:
        """Make a user; `by` is who asks. Raises RemotingCommandError if it is there, or is not for this user."""
        self._check_super(user, by)
        if user.username in self.users:
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, "The user is existed")
        self._keep(self.users | {user.username: user}, self.acls)

    def update_user(self, user: User, by: str) -> None:
        """Replace a user; errors as of `create_user`."""
        before = self.user(user.username)
        self._check_super(before, by)
        self._check_super(user, by)
        self._keep(self.users | {user.username: user}, self.acls)

    def delete_user(self, name: str, by: str) -> None:
        """Remove a user and its policies, if it is there; errors as of `create_user`."""
        if name in self.users:
            self._check_super(self.users[name], by)
            self._keep(_without(self.users, name), _without(self.acls, name))

    def user(self, name: str) -> User:
        """A user; raises RemotingCommandError if there is none."""
        if name not in self.users:
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, _NOBODY)
        return self.users[name]

    def _check_super(self, user: User, by: str) -> None:
        """Super users are made, changed and deleted by super users alone; without a key, if nobody is asked who."""
        asking = self.users.get(by)
        if user.user_type is UserType.SUPER and by and (asking is None or asking.user_type is not UserType.SUPER):
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, "The super user can only be changed by super user")

    # -- policies

    def put_entries(self, name: str, policies: Policies) -> None:
        """Add entries to a user's policies; one of the same resource and type is replaced."""
        self._check_subject(name)
        merged = dict(self.acls.get(name, {}))
        for kind, entries in policies.items():
            by_resource = {one.resource: one for one in (*merged.get(kind, ()), *entries)}
            merged[kind] = tuple(by_resource.values())
        self._keep(self.users, self.acls | {name: merged})

    def delete_entries(self, name: str, kind: PolicyType, resource: Resource | None) -> None:
        """Remove the entry of a resource, or without one all policies of a user."""
        self._check_subject(name)
        if name not in self.acls:
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, "The acl is not exist")
        left: Policies = {}
        if resource is not None:
            left = dict(self.acls[name])
            left[kind] = tuple(one for one in left.get(kind, ()) if one.resource != resource)
            left = {one: entries for one, entries in left.items() if entries}
        acls = _without(self.acls, name) | ({name: left} if left else {})
        self._keep(self.users, acls)

    def policies(self, name: str) -> Policies:
        """The policies of a user, maybe none; raises RemotingCommandError if there is no such user."""
        self._check_subject(name)
        return self.acls.get(name, {})

    def _check_subject(self, name: str) -> None:
        if name not in self.users:
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, "The subject is not exist.")


def _without(table: dict[str, object] | dict[str, User] | dict[str, Policies], name: str) -> dict:  # type: ignore[type-arg]
    return {key: value for key, value in table.items() if key != name}


def changed_user(user: User, **changes: object) -> User:
    """A user with the changes that are no None."""
    return replace(user, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def entries_of(policies: Policies, resource_filter: str) -> Policies:
    """The entries whose resource contains a text."""

    def keep(entries: Iterable[PolicyEntry]) -> tuple[PolicyEntry, ...]:
        return tuple(one for one in entries if resource_filter in one.resource.text)

    kept = {kind: keep(entries) for kind, entries in policies.items()}
    return {kind: entries for kind, entries in kept.items() if entries}
