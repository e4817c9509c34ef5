"""Commands that only RocketMQ's `mqadmin` has: `reput admin` names them to users that look for one here."""

from __future__ import annotations

import re

#: Commands that work with reput's brokers (docs/admin.md), and that no command of `reput admin` stands for.
COMMANDS = (
    "updateTopic", "updateTopicList", "updateTopicPerm", "topicClusterList", "allocateMQ", "updateSubGroup",
    "updateSubGroupList", "deleteSubGroup", "getConsumerConfig", "setConsumeMode", "getBrokerConfig",
    "updateBrokerConfig", "getNamesrvConfig", "updateNamesrvConfig", "queryMsgById", "queryMsgByKey",
    "queryMsgByUniqueKey", "queryMsgByOffset", "queryMsgTraceById", "consumeMessage", "queryCq", "checkMsgSendRT",
    "clusterRT", "producer", "producerConnection", "consumerStatus", "startMonitoring", "brokerConsumeStats",
    "statsAll", "skipAccumulatedMessage", "cloneGroupOffset", "updateKvConfig", "deleteKvConfig", "updateOrderConf",
    "wipeWritePerm", "addWritePerm", "cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog", "exportMetadata",
    "exportConfigs", "exportMetrics", "createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser",
    "createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl", "updateAclConfig", "deleteAclConfig",
    "clusterAclConfigVersion", "updateGlobalWhiteAddr", "getAclConfig", "haStatus",
)  # fmt: skip
#: mqadmin's word for what others call so.
_WORDS = {"create": "update", "add": "update", "set": "update", "remove": "delete", "drop": "delete", "show": "get"}


def commands_like(name: str) -> list[str]:
    """Commands of mqadmin that begin with a name's first word and have all others: `delete-group`, `skip`."""
    words = _words(name)
    return _with(words) or _with([_WORDS.get(words[0], words[0]), *words[1:]]) if words else []


def _with(words: list[str]) -> list[str]:
    found = ((command, _words(command)) for command in COMMANDS)
    return [command for command, parts in found if parts[0] == words[0] and set(words) <= set(parts)]


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Za-z][a-z]*", name)]
