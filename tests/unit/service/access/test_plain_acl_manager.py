"""Files of accounts that administrators change: what stays, what is refused, and what a power cut leaves."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reput.errors import ConfigError, StoreError
from reput.files import DISK
from reput.formats.metadata import DataVersion
from reput.service.access.plain_acl import Perm
from reput.service.access.plain_acl_manager import PlainAclManager
from tests.support.faulty_files import FaultyFiles, fail_at

SECRET = "secret-of-tests"
FILE = f"""# a comment
globalWhiteRemoteAddresses: [10.0.0.1]
ours: {{kept: [1, 2]}}
accounts:
- {{accessKey: First-1, secretKey: {SECRET}, ours: kept, topicPerms: [a=PUB], admin: true}}
- {{accessKey: Second-1, secretKey: {SECRET}}}
"""
MORE = f"accounts: [{{accessKey: Third-1, secretKey: {SECRET}}}]\n"
NEW = {"accessKey": "Fourth-1", "secretKey": SECRET, "topicPerms": "a=PUB, b=SUB|PUB", "admin": "true"}
Change = Callable[[PlainAclManager], None]


def write(home: Path) -> tuple[Path, Path]:
    """Two files with accounts."""
    files = home / "conf/plain_acl.yml", home / "conf/acl/more.yml"
    files[1].parent.mkdir(parents=True)
    for path, text in zip(files, (FILE, MORE), strict=True):
        path.write_text(text)
    return files


def content(path: Path) -> Any:
    return yaml.safe_load(path.read_bytes())


def test_an_account_that_is_made_counts_and_all_else_of_the_file_stays(tmp_path: Path) -> None:
    default, more = write(tmp_path)
    before = content(default)
    manager = PlainAclManager(str(tmp_path), DISK)
    manager.put_account(NEW, 7)
    account = manager.acl.accounts["Fourth-1"]
    assert (account.secret_key, account.admin, account.perms) == (SECRET, True, {"a": Perm.PUB, "b": Perm(12)})
    after = content(default)
    assert after.pop("dataVersion") == [{"counter": 1, "timestamp": 7}]
    made = {"accessKey": "Fourth-1", "secretKey": SECRET, "topicPerms": ["a=PUB", "b=SUB|PUB"], "admin": True}
    assert after == before | {"accounts": [*before["accounts"], made]}
    assert stat.S_IMODE(default.stat().st_mode) == 0o600
    assert more.read_text() == MORE
    assert manager.reload() is False
    assert PlainAclManager(str(tmp_path), DISK).acl.accounts.keys() == manager.acl.accounts.keys()


def test_an_account_is_changed_in_its_file_and_keeps_what_the_request_does_not_name(tmp_path: Path) -> None:
    default, more = write(tmp_path)
    manager = PlainAclManager(str(tmp_path), DISK)
    manager.put_account({"accessKey": "First-1", "secretKey": SECRET + "2", "defaultGroupPerm": "SUB"}, 1)
    assert content(default)["accounts"][0] == {
        "accessKey": "First-1", "secretKey": SECRET + "2", "ours": "kept", "topicPerms": ["a=PUB"], "admin": True,
        "defaultGroupPerm": "SUB",
    }  # fmt: skip
    before = default.read_bytes()
    manager.put_account({"accessKey": "Third-1", "secretKey": SECRET, "whiteRemoteAddress": "10.0.0.*"}, 2)
    assert content(more)["accounts"][0]["whiteRemoteAddress"] == "10.0.0.*"
    assert manager.acl.accounts["Third-1"].is_white("10.0.0.9")
    assert default.read_bytes() == before
    assert manager.versions() == (
        DataVersion(1, timestamp=1), {str(default): DataVersion(1, timestamp=1), str(more): DataVersion(1, timestamp=2)}
    )  # fmt: skip
    manager.put_account({"accessKey": "First-1", "secretKey": SECRET, "admin": "false"}, 3)
    assert not manager.acl.accounts["First-1"].admin
    assert manager.versions()[0] == DataVersion(2, timestamp=3)


def test_an_account_that_is_deleted_is_gone_from_its_file_alone(tmp_path: Path) -> None:
    default, more = write(tmp_path)
    manager = PlainAclManager(str(tmp_path), DISK)
    manager.delete_account("Third-1", 1)
    manager.delete_account("First-1", 2)
    assert content(more)["accounts"] == []
    assert [one["accessKey"] for one in content(default)["accounts"]] == ["Second-1"]
    assert list(manager.acl.accounts) == ["Second-1"]


def test_a_white_list_is_replaced_in_one_file(tmp_path: Path) -> None:
    default, more = write(tmp_path)
    manager = PlainAclManager(str(tmp_path), DISK)
    manager.put_white_addresses("10.0.0.2,10.0.1.*", None, 1)
    manager.put_white_addresses("10.0.2.1", str(more), 2)
    assert content(default)["globalWhiteRemoteAddresses"] == ["10.0.0.2", "10.0.1.*"]
    assert [manager.acl.is_white(one) for one in ("10.0.0.1", "10.0.0.2", "10.0.1.9", "10.0.2.1")] == [
        False, True, True, True,
    ]  # fmt: skip
    assert manager.config()["globalWhiteAddrs"] == ["10.0.0.2", "10.0.1.*", "10.0.2.1"]
    manager.put_white_addresses("", None, 3)
    assert content(default)["globalWhiteRemoteAddresses"] == []


def test_plain_acl_yml_is_made_where_only_the_folder_has_files(tmp_path: Path) -> None:
    default, _ = write(tmp_path)
    default.unlink()
    manager = PlainAclManager(str(tmp_path), DISK)
    assert manager.versions()[0] == DataVersion()
    manager.put_account(NEW, 1)
    assert [one["accessKey"] for one in content(default)["accounts"]] == ["Fourth-1"]
    assert manager.acl.accounts.keys() == {"Third-1", "Fourth-1"}


REFUSED: list[tuple[Change, str]] = [
    (lambda one: one.put_account(NEW | {"accessKey": "Short1"}, 1), "more than 6 characters"),
    (lambda one: one.put_account({"secretKey": SECRET}, 1), "more than 6 characters"),
    (lambda one: one.put_account(NEW | {"secretKey": SECRET[:6]}, 1), "more than 6 characters"),
    (lambda one: one.put_account({"accessKey": "First-1"}, 1), "expected a secretKey"),
    (lambda one: one.put_account(NEW | {"topicPerms": "a"}, 1), "topicPerms: expected PUB, SUB"),
    (lambda one: one.put_account(NEW | {"topicPerms": "a=PUB,b=ALL"}, 1), "topicPerms: .* found 'ALL'"),
    (lambda one: one.put_account(NEW | {"groupPerms": "g=sub"}, 1), "groupPerms: .* found 'sub'"),
    (lambda one: one.put_account(NEW | {"defaultTopicPerm": "ALL"}, 1), "defaultTopicPerm: .* found 'ALL'"),
    (lambda one: one.put_account(NEW | {"defaultGroupPerm": "ALL"}, 1), "defaultGroupPerm: .* found 'ALL'"),
    (lambda one: one.put_account(NEW | {"whiteRemoteAddress": "nowhere"}, 1), "'nowhere' is no address"),
    (lambda one: one.delete_account("Nobody-1", 1), "there is no account 'Nobody-1'"),
    (lambda one: one.delete_account("", 1), "there is no account ''"),
    (lambda one: one.put_white_addresses("10.0.0", None, 1), "'10.0.0' is no address"),
    (lambda one: one.put_white_addresses("10.0.0.1", "/etc/passwd", 1), "aclFileFullPath is none of the files"),
]


@pytest.mark.parametrize(("change", "expected"), REFUSED)
def test_a_wrong_change_changes_nothing_and_tells_no_secret(tmp_path: Path, change: Change, expected: str) -> None:
    default, more = write(tmp_path)
    manager = PlainAclManager(str(tmp_path), DISK)
    acl = manager.acl
    with pytest.raises(ValueError, match=expected) as caught:
        change(manager)
    assert SECRET[:6] not in str(caught.value).replace("secretKey", "")
    assert (default.read_text(), more.read_text()) == (FILE, MORE)
    assert manager.acl is acl


def test_a_file_that_somebody_else_changed_is_changed_as_it_is_now_or_not_at_all(tmp_path: Path) -> None:
    default, more = write(tmp_path)
    manager = PlainAclManager(str(tmp_path), DISK)
    default.write_text(FILE + f"- {{accessKey: Edited-1, secretKey: {SECRET}}}\n")
    manager.put_account(NEW, 1)
    assert {"Edited-1", "Fourth-1"} <= manager.acl.accounts.keys()
    more.write_text("accounts: [{")
    with pytest.raises(ValueError, match=r"more\.yml: no YAML in line 1"):
        manager.delete_account("First-1", 1)
    assert "First-1" in manager.acl.accounts
    assert "First-1" in default.read_text()


def test_files_that_are_all_gone_leave_the_accounts_as_they_were(tmp_path: Path) -> None:
    for path in write(tmp_path):
        path.rename(path.with_suffix(".away"))
    with pytest.raises(ConfigError, match="is missing"):
        PlainAclManager(str(tmp_path), DISK)
    for path in tmp_path.glob("conf/**/*.away"):
        path.rename(path.with_suffix(".yml"))
    manager = PlainAclManager(str(tmp_path), DISK)
    for path in tmp_path.glob("conf/**/*.yml"):
        path.unlink()
    with pytest.raises(ValueError, match="is missing"):
        manager.reload()
    assert manager.reload() is False
    assert manager.acl.accounts.keys() == {"First-1", "Second-1", "Third-1"}


def test_a_change_is_durable_when_it_returns_and_a_failing_disk_leaves_the_file_whole(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home)
    files = FaultyFiles()
    files.all_is_durable(home)
    manager = PlainAclManager(str(home), files)
    manager.put_account(NEW, 1)
    count = len(files.operations)
    files.cut_power(home, tmp_path / "after")
    assert "Fourth-1" in PlainAclManager(str(tmp_path / "after"), DISK).acl.accounts
    assert count > 3
    for number in range(count):
        faulty = tmp_path / str(number)
        write(faulty)
        failing = FaultyFiles(fail_at(number, errno.EIO))
        manager = PlainAclManager(str(faulty), failing)
        acl = manager.acl
        with pytest.raises(StoreError):
            manager.put_account(NEW, 1)
        assert manager.acl is acl
        left = PlainAclManager(str(faulty), DISK).acl.accounts.keys() - {"Fourth-1"}
        assert left == {"First-1", "Second-1", "Third-1"}
