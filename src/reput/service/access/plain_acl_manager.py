"""PlainAclManager: files of accounts, read again when they change, and changed as administrators ask (ACL 1.0)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from reput.errors import ConfigError
from reput.extras import require
from reput.files import FileLayer
from reput.formats.metadata import DataVersion
from reput.service.access.plain_acl import PlainAcl, read_plain_acl
from reput.service.access.plain_acl_changes import (
    Content,
    config_body,
    find_account,
    put_account,
    put_version,
    put_white_addresses,
    remove_account,
    version_of,
)
from reput.store.config_files import next_version


class PlainAclManager:
    """The accounts of `conf/plain_acl.yml` and `conf/acl/*.yml`.

    Any thread may ask. What reads or changes files waits for the disk.

    Args:
        home: The folder that has `conf`.
        files: The file layer.
        reason: The key and the value for which the files are read, as errors say it.

    Attributes:
        acl: What counts: that of the last files that were right.

    Raises:
        ConfigError: A file is missing or wrong; or YAML is not installed.
    """

    def __init__(self, home: str, files: FileLayer, reason: str = "aclEnable=true") -> None:
        require("yaml", reason)
        conf = os.path.join(os.path.expanduser(home), "conf")
        self._default, self._folder = os.path.join(conf, "plain_acl.yml"), os.path.join(conf, "acl")
        self._files = files
        self._changing = Lock()
        self._data = self._read()
        if not self._data:
            raise ConfigError(f"{reason}: {self._default} is missing; make it, or name its home by rocketmqHome")
        try:
            self._take(self._data)
        except ValueError as error:
            raise ConfigError(f"{reason}: {error}") from None

    def _read(self) -> dict[str, bytes]:
        """The files by their paths."""
        paths = [self._default]
        if self._files.is_directory(self._folder):
            names = [entry.name for entry in self._files.list_directory(self._folder)]
            paths += [os.path.join(self._folder, name) for name in names if name.endswith((".yml", ".yaml"))]
        return {path: self._files.read_bytes(path) for path in paths if self._files.exists(path)}

    def _take(self, data: dict[str, bytes]) -> None:
        """Let files count. Raises ValueError, without secrets, if one is wrong: then all stays as it was."""
        contents = _load(data)
        self.acl: PlainAcl = read_plain_acl(contents)
        self._contents: Mapping[str, Content] = contents

    def reload(self) -> bool:
        """Take changed files; whether they had changed.

        Raises:
            ValueError: A file is wrong, which is said once; the accounts stay as they were.
            ReputError: A file cannot be read.
        """
        with self._changing:
            data = self._read()
            if data == self._data:
                return False
            self._data = data
            if not data:
                raise ValueError(f"{self._default} is missing")
            self._take(data)
            return True

    # -- what administrators ask for

    def config(self) -> dict[str, Any]:
        """All accounts with their secrets, and all white addresses, as the answer to a request has them."""
        return config_body(self._contents)

    def versions(self) -> tuple[DataVersion, dict[str, DataVersion]]:
        """Number of changes of plain_acl.yml by requests, and of each file by its path."""
        versions = {path: version_of(content) for path, content in self._contents.items()}
        return versions.get(self._default, DataVersion()), versions

    def put_account(self, fields: Mapping[str, str], now_ms: int) -> None:
        """Make an account in plain_acl.yml, or change it in its file; errors as of `_change`."""
        self._change(lambda contents: self._file_of(contents, fields), lambda one: put_account(one, fields), now_ms)

    def delete_account(self, access_key: str, now_ms: int) -> None:
        """Remove an account from its file; errors as of `_change`, also if there is none."""

        def file_of(contents: dict[str, Content]) -> str:
            for path, content in contents.items():
                if find_account(content, access_key) is not None:
                    return path
            raise ValueError(f"there is no account {access_key!r:.64}")

        self._change(file_of, lambda content: remove_account(content, access_key), now_ms)

    def put_white_addresses(self, addresses: str, path: str | None, now_ms: int) -> None:
        """Replace the white list of plain_acl.yml, or of another of the files; errors as of `_change`."""

        def file_of(contents: dict[str, Content]) -> str:
            if path and path not in contents:
                raise ValueError("aclFileFullPath is none of the files with accounts")
            return path or self._default

        self._change(file_of, lambda content: put_white_addresses(content, addresses), now_ms)

    def _file_of(self, contents: dict[str, Content], fields: Mapping[str, str]) -> str:
        key = fields.get("accessKey", "")
        return next((path for path, one in contents.items() if find_account(one, key) is not None), self._default)

    def _change(
        self, file_of: Callable[[dict[str, Content]], str], change: Callable[[Content], None], now_ms: int
    ) -> None:
        """Change one file as it is now: all else of it but its comments stays. It is on the disk before it counts.

        Raises:
            ValueError: The change, or a file that somebody else changed, is wrong; nothing was changed.
            StoreError: The file cannot be replaced.
        """
        with self._changing:
            data = self._read()
            contents = _load(data)
            read_plain_acl(contents)
            path = file_of(contents)
            content = contents.setdefault(path, {})
            change(content)
            put_version(content, next_version(version_of(content), now_ms))
            data[path] = _dump(content)
            read_plain_acl(_load(data))
            self._files.write_atomically(path, data[path], is_private=True)
            self._data = data
            self._take(data)


def _dump(content: Content) -> bytes:
    import yaml

    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode()


def _load(data: Mapping[str, bytes]) -> dict[str, Any]:
    """Values of YAML files, by path; errors have the line, and nothing of the text, which has secrets."""
    import yaml

    loaded = {}
    for path, text in data.items():
        try:
            loaded[path] = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            where = "" if mark is None else f" in line {mark.line + 1}"
            raise ValueError(f"{path}: no YAML{where}") from None
        loaded[path] = {} if loaded[path] is None else loaded[path]
    return loaded
