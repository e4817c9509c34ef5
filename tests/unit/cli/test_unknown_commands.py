"""A command that is none: the error names what is meant, and never a command that only begins like it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reput.cli.commands.admin.mqadmin import COMMANDS
from tests.support.commands import Run

PAGE = Path(__file__).parents[3] / "docs" / "admin.md"
#: Those of mqadmin that a command of `reput admin` stands for.
HAS_ITS_LIKE = {
    "deleteTopic", "topicList", "topicRoute", "topicStatus", "clusterList", "brokerStatus", "printMsg",
    "printMsgByQueue", "sendMessage", "sendMsgStatus", "consumerConnection", "consumerProgress", "resetOffsetByTime",
}  # fmt: skip


def test_the_commands_of_mqadmin_are_those_of_its_page() -> None:
    rows = re.findall(r"^\| (`.*?) \| [\d, ]* \| (.*) \|$", PAGE.read_text(), re.M)
    working = [names for names, here in rows if "work" in here or here.startswith("succeed")]
    works = {name for names in working for name in re.findall(r"`(\w+)`", names)}
    assert works - HAS_ITS_LIKE == set(COMMANDS)
    assert works >= HAS_ITS_LIKE


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("admin", "delete-group"), "; mqadmin has deleteSubGroup"),
        (("admin", "remove-group"), "; mqadmin has deleteSubGroup"),
        (("admin", "deleteSubGroup"), "; mqadmin has deleteSubGroup"),
        (("admin", "create-group"), "; mqadmin has updateSubGroup, updateSubGroupList"),
        (("admin", "skip"), "; mqadmin has skipAccumulatedMessage"),
        (("admin", "clone"), "; mqadmin has cloneGroupOffset"),
        (("admin", "update-topic"), "; mqadmin has updateTopic, updateTopicList, updateTopicPerm"),
        (("admin", "delete-user"), "; mqadmin has deleteUser"),
        (("admin", "delete-queue"), ""),
        (("admin", "delete-topc"), ". Did you mean 'delete-topic'?"),
        (("admin", "group"), ". Did you mean 'groups'?"),
        (("admin", "xyz"), ""),
        (("delete-topic",), "; it is `reput admin delete-topic`"),
        (("lag",), "; it is `reput admin lag`"),
        (("delete-group",), ""),
        (("repiar",), ". Did you mean 'repair'?"),
        (("restor",), ". Did you mean 'restore'?"),
        (("nope",), ""),
    ],
)
def test_an_unknown_command_is_told_with_what_is_meant(run_reput: Run, typed: tuple[str, ...], told: str) -> None:
    *group, name = typed
    done = run_reput(*typed)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"reput: No such command {name!r}{told}; see {' '.join(['reput', *group])} --help\n"


@pytest.mark.parametrize("typed", [("get",), ("admin", "lag"), ("admin", "topic")])
def test_a_missing_argument_is_told_with_the_help_that_explains_it(run_reput: Run, typed: tuple[str, ...]) -> None:
    done = run_reput(*typed)
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(rf"reput: Missing argument '\w+'; see reput {' '.join(typed)} --help\n", done.err)


def test_admin_alone_prints_its_help_line_by_line(run_reput: Run) -> None:
    assert (alone := run_reput("admin")) == run_reput("admin", "--help")
    assert (alone.status, alone.err) == (0, "")
    assert alone.out.count("\n") > 20
