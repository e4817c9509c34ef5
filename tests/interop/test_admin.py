"""mqadmin's own commands of three versions against our broker and name server, judged by what they print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from reput import Broker
from reput.client import Message
from reput.client.sync import Producer
from reput.remoting.codes import RequestCode
from tests.support.asking import ask
from tests.support.mqadmin import commands_of_the_page
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": 1 << 20}
_TRACE = r"^(?:Caused by: )?[\w$]+\.[\w.$]+(?:Exception|Error)\b"
_TIME = r"\d{{4}}-\d\d-\d\d[ @#]\d\d:\d\d:\d\d"
_VERSION = r"V\d+_\d+_\d+"

#: Commands, and patterns of which each must be in a line of what they print. Words in {} are filled in.
MADE = (
    ("updateTopic -c DefaultCluster -t orders -r 1 -w 1", "create topic to {broker} success"),
    ("updateSubGroup -c DefaultCluster -g g -r 3", "create subscription group to {broker} success"),
    ("updateSubGroup -b {broker} -g other", "create subscription group to {broker} success"),
)
#: While a consumer of the group g, which has consumed the topic's message, and a producer are there.
SHOWN = (
    ("clusterList", rf"DefaultCluster\s+broker-a\s+0\s+{{broker}}\s+{_VERSION}"),
    ("clusterList -m", r"DefaultCluster\s+broker-a\s+\d+\s+\d+\s+\d+\s+\d+"),
    ("topicList", "^orders$", "^%RETRY%g$", "^SCHEDULE_TOPIC_XXXX$"),
    ("topicList -c", r"DefaultCluster\s+orders\s+g"),
    ("topicRoute -t orders", '"brokerName":"broker-a"', '"perm":6', '"readQueueNums":1'),
    ("topicStatus -t orders", rf"broker-a\s+0\s+0\s+1\s+{_TIME}"),
    ("topicClusterList -t orders", "^DefaultCluster$"),
    ("brokerStatus -b {broker}", rf"^brokerVersionDesc\s+: {_VERSION}", r"^putTps\s+: [\d.]+ [\d.]+ [\d.]+$"),
    ("getBrokerConfig -b {broker}", r"^brokerName\s+=\s+broker-a\s*$", r"^defaultTopicQueueNums\s+=\s+8\s*$"),
    ("getConsumerConfig -g g", r"^groupName\s+=\s+g\s*$", r"^retryMaxTimes\s+=\s+3\s*$"),
    ("getNamesrvConfig -n {namesrv}", r"^listenPort\s+=\s+\d+\s*$"),
    ("allocateMQ -t orders -i a,b", r'"a":\[', r'"b":\['),
    ("consumerConnection -g g", rf"{{client}}\s+127\.0\.0\.1:\d+\s+JAVA\s+{_VERSION}", r"orders\s+\*"),
    ("producerConnection -g p -t orders", rf"127\.0\.0\.1:\d+\s+PYTHON\s+{_VERSION}"),
    (
        "consumerStatus -g g -i {client}",
        r"PROP_CONSUME_TYPE\s+: CONSUME_PASSIVELY",
        "Topic: orders .*SubExpression: [*]",
    ),
    ("consumerProgress -g g", rf"orders\s+broker-a\s+0\s+1\s+1\s+0\s+.*{_TIME}", "Diff Total: 0"),
    ("consumerProgress", rf"^g\s+1\s+{_VERSION}\S*\s+PUSH\s+CLUSTERING\s+[\d.]+\s+0"),
    ("brokerConsumeStats -b {broker}", rf"orders\s+g\s+broker-a\s+0\s+1\s+1\s+0\s+{_TIME}", r"Diff Total: \d+"),
    ("statsAll -t orders", r"orders\s+g\s+0\s+[\d.]+\s+[\d.]+\s+\d+\s+\d+"),
    ("queryMsgByKey -t orders -k o-1", r"{message}\s+0\s+0"),
    ("queryMsgById {of_topic} -i {offset_id}", r"^Keys:\s+\[o-1\]", "consumerGroup=g, trackType=CONSUMED"),
    ("queryMsgByUniqueKey -t orders -i {message}", r"^Tags:\s+\[paid\]", "consumerGroup=g, trackType=CONSUMED"),
    ("queryMsgByOffset -t orders -b broker-a -i 0 -o 0", r"^Queue Offset:\s+0", r"^Properties:\s+.*UNIQ_KEY={message}"),
    ("printMsg -t orders -d true", "MSGID: {message} .*BODY: hello"),
    ("printMsgByQueue -t orders -a broker-a -i 0 -p true -d true", "MSGID: {message} .*BODY: hello"),
    ("consumeMessage -t orders -c 1", "MSGID: {message} .*BODY: hello"),
    ("queryCq -t orders -q 0 -i 0 -c 1 -b {broker}", r"physicOffset=\d+"),
)
#: Afterwards.
CHANGED = (
    ("sendMessage -t orders -p hi -k sent", r"broker-a\s+0\s+SEND_OK\s+[0-9A-F]{{32}}"),
    ("queryMsgByKey -t orders -k sent", r"^[0-9A-F]{{32,}}\s+0\s+1"),
    ("checkMsgSendRT -t orders -a 2 -s 10", r"^broker-a\s+0\s+true\s+\d+", r"^Avg RT: [\d.]+"),
    ("sendMsgStatus -b broker-a -s 10 -c 2", r"SendResult \[sendStatus=SEND_OK, "),
    (
        "cloneGroupOffset -s g -d other -t orders -o true",
        r"clone group .*offset success.*destGroup=\[other\]",
    ),
    ("brokerConsumeStats -b {broker}", r"orders\s+other\s+broker-a\s+0\s+4\s+1\s+3"),
    ("resetOffsetByTime -g g -t orders -s 0 -f true", r"broker-a\s+0\s+.*0\s*$"),
    ("consumerProgress -g g", r"orders\s+broker-a\s+0\s+4\s+0\s+4"),
    ("skipAccumulatedMessage -g g -t orders -f true", r"broker-a\s+0\s+.*4\s*$"),
    ("consumerProgress -g g", r"orders\s+broker-a\s+0\s+4\s+4\s+0"),
    ("updateBrokerConfig -b {broker} -k defaultTopicQueueNums -v 7", "update broker config success"),
    ("getBrokerConfig -b {broker}", r"^defaultTopicQueueNums\s+=\s+7\s*$"),
    ("updateTopicPerm -c DefaultCluster -t orders -p 4", "update topic perm from 6 to 4 in {broker} success"),
    ("topicRoute -t orders", '"perm":4'),
    ("updateTopicPerm -b {broker} -t orders -p 6", "update topic perm from 4 to 6 in {broker} success"),
    ("wipeWritePerm -b broker-a", r"wipe write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]"),
    ("topicRoute -t orders", '"perm":4'),
    ("addWritePerm -b broker-a", r"add write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]"),
    ("topicRoute -t orders", '"perm":6'),
    ("updateOrderConf -t orders -m put -v broker-a:1", "success|orders"),
    ("updateOrderConf -t orders -m get", "orders.*broker-a:1"),
    ("updateOrderConf -t orders -m delete", "success|orders"),
    ("updateKvConfig -s here -k k -v v", "create or update kv config to namespace success"),
    ("deleteKvConfig -s here -k k", "delete kv config from namespace success"),
    ("exportMetadata -c DefaultCluster -f {folder}/metadata", "export .*success"),
    ("exportConfigs -c DefaultCluster -f {folder}/configs", "export .*success"),
    ("exportMetrics -c DefaultCluster -f {folder}/metrics", "export .*success"),
    ("cleanUnusedTopic -b {broker}", "success"),
    ("cleanExpiredCQ -b {broker}", "success"),
    ("deleteExpiredCommitLog -b {broker}", "success"),
    ("deleteSubGroup -c DefaultCluster -g g", r"delete subscription group \[g\] from broker \[{broker}\] .*success"),
    ("deleteTopic -c DefaultCluster -t orders", r"delete topic \[orders\] from cluster \[DefaultCluster\] success"),
)


def judge(apache: Apache, broker: Broker, commands: Iterable[tuple[str, ...]], **values: str) -> None:
    """Run commands one after the other, and fail with what each of them prints that does not print what it should."""
    wrong = []
    values |= {"broker": broker.address, "namesrv": broker.namesrv}
    escaped = {name: re.escape(value) for name, value in values.items()}
    for command, *patterns in commands:
        printed = apache.run("mqadmin", namesrv=broker.namesrv, words=command.format(**values).split())
        missing = [one for one in patterns if not re.search(one.format(**escaped), printed, re.MULTILINE)]
        if missing or re.search(_TRACE, printed, re.MULTILINE):
            wrong.append(f"{command}\nwithout {missing}:\n{printed}")
    assert not wrong, "\n\n".join(wrong)


def commit(address: str, **fields: object) -> None:
    """Commit an offset, as the consumer will do later."""
    ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


def test_each_command_of_mqadmin_shows_and_does_what_it_says(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        judge(apache, broker, MADE)
        with Producer(broker.namesrv, group="p") as producer:
            sent = producer.send(Message("orders", b"hello", tags="paid", keys=["o-1"]))
            client = apache.run("consumer-start", namesrv=broker.namesrv, group="g", topic="orders")
            try:
                assert apache.run("consumer-take") == "hello"
                offset = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
                commit(broker.address, **offset)
                values = {
                    "client": client, "message": sent.message_id, "offset_id": sent.offset_message_id,
                    "of_topic": "" if apache.version == "4.9.7" else "-t orders",
                }  # fmt: skip
                judge(apache, broker, SHOWN, **values)
            finally:
                apache.run("consumer-stop")
        judge(apache, broker, CHANGED, folder=str(tmp_path))


def test_the_page_has_each_command_of_mqadmin(apache: Apache) -> None:
    assert set(apache.run("mqadmin-commands")) - commands_of_the_page().keys() == set()
