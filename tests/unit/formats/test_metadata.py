from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptMetadataError
from reput.formats.metadata import (
    FILE_NAMES,
    BloomFilterData,
    ConsumerFilters,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    LmqConsumerOffsets,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicFilterType,
    Topics,
    decode_metadata,
    encode_metadata,
    encode_topic,
    encode_topics,
    split_topic_group,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "config"
INT = st.integers(-(2**63), 2**63 - 1)
NAME = st.text(min_size=1, max_size=8).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


def golden(kind):
    return decode_metadata(kind, (GOLDEN / "5.3.3" / FILE_NAMES[kind]).read_bytes())


@pytest.mark.parametrize("kind", FILE_NAMES, ids=FILE_NAMES.get)
def test_what_rocketmq_wrote_is_written_back(kind):
    data = (GOLDEN / "5.3.3" / FILE_NAMES[kind]).read_bytes()
    written = encode_metadata(golden(kind))
    assert decode_metadata(kind, written) == golden(kind)
    if b"$ref" not in data:
        assert written == data


def test_topics_are_read():
    topics = golden(Topics)
    assert topics.data_version == DataVersion(3, 0, 1700000000000)
    assert topics.topic_config_table["order-topic"] == TopicConfig("order-topic", 4, 8, topic_sys_flag=1)
    shared = topics.topic_config_table["1:2"].attributes
    assert shared == {"queue.type": "BatchCQ", "odd": '{1:2} " \\ \n \x07 \x85 \u2028 ü 😀 /'}
    assert topics.topic_config_table["%RETRY%order-group"].attributes == shared


TOPIC = st.builds(
    TopicConfig, NAME | st.just('"topicName":""'), INT, INT, INT, st.sampled_from(TopicFilterType), INT, st.booleans(),
    st.dictionaries(NAME | st.just("topicName"), NAME | st.just(""), max_size=2),
    st.dictionaries(st.just("later"), st.booleans() | st.just("\n\t\"topicConfigTable\":{}"), max_size=1),
)  # fmt: skip


@given(
    st.dictionaries(NAME, TOPIC, max_size=4),
    st.builds(DataVersion, INT, INT, INT),
    st.dictionaries(st.sampled_from(["a", "z"]), TOPIC.map(lambda topic: topic.attributes), max_size=2),
)
def test_topics_that_are_encoded_one_by_one_are_the_file(table, version, others):
    topics = Topics(table, version, others)
    assert encode_topics(topics, [encode_topic(*one) for one in table.items()]) == encode_metadata(topics)


def test_groups_are_read():
    groups = golden(SubscriptionGroups)
    group = groups.subscription_group_table["order-group"]
    assert group.retry_max_times == 16
    assert group.subscription_data_set[0].expression == "a || b"
    assert groups.forbidden_table == {"order-group": {"order-topic": 1}}


def test_what_a_file_leaves_out_has_rocketmqs_defaults():
    """RocketMQ wrote these from `new SubscriptionGroupConfig()` and `new TopicConfig()` with a few fields set."""
    group = golden(SubscriptionGroups).subscription_group_table["order-group"]
    assert replace(group, subscription_data_set=None, attributes={}) == SubscriptionGroupConfig("order-group")
    topic = golden(Topics).topic_config_table["order-topic"]
    assert topic == TopicConfig("order-topic", read_queue_nums=4, write_queue_nums=8, topic_sys_flag=1)
    assert (TopicConfig("t").read_queue_nums, TopicConfig("t").write_queue_nums, TopicConfig("t").perm) == (16, 16, 6)


def test_offsets_are_read():
    offsets = golden(ConsumerOffsets)
    assert offsets.offset_table["order-topic@order-group"] == {0: 12, 1: 7, 11: 1 << 40}
    assert golden(LmqConsumerOffsets).lmq_offset_table == {"%LMQ%a@%LMQ%group": 3}
    assert golden(DelayOffsets).offset_table == {1: 5, 3: 12}
    assert split_topic_group("a@b@c") == ("a", "b@c")


def test_filters_are_read():
    by_group = golden(ConsumerFilters).filter_data_by_topic["order-topic"].group_filter_data
    assert by_group["sql-group"].bloom_filter_data == BloomFilterData(112, (29, 72, 81))


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (DelayOffsets, (GOLDEN / "4.9.7" / "delayOffset.json").read_bytes(), DelayOffsets()),
        (ConsumerOffsets, b'{"offsetTable":{"a@b":{0:1}}}', ConsumerOffsets({"a@b": {0: 1}})),
        (ConsumerOffsets, b'{"offsetTable":{"a@b":{"0":1}},"dataVersion":null}', ConsumerOffsets({"a@b": {0: 1}})),
        (DataVersion, b'{"counter":3,"timestamp":5}', DataVersion(3, 0, 5)),
        (
            SubscriptionGroups,
            b'{"subscriptionGroupTable":{"g":{"groupName":"g","brokerId":0,"retryMaxTimes":3}}}',
            SubscriptionGroups({"g": SubscriptionGroupConfig("g", retry_max_times=3)}),
        ),
    ],
)
def test_the_lesser_forms_of_4_9_7_are_read(kind, data, value):
    assert decode_metadata(kind, data) == value


def test_members_that_are_not_known_are_kept_where_they_were():
    data = b'{"dataVersion":{"x":[1,2]},"later":{7:"z"},"topicConfigTable":{"a":{"lite":null,"topicName":"a","zz":1}}}'
    written = encode_metadata(decode_metadata(Topics, data))
    assert b'"x":[1,2]' in written
    assert b'"later":{7:"z"\n\t}' in written
    assert b'\t\t\t"lite":null,\n' in written
    assert b'"zz":1' in written


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (Topics, b"[]", "the file: expected an object"),
        (Topics, b'{"topicConfigTable":{"x":{}}}', "topicConfigTable.x.topicName: expected this member, found nothing"),
        (Topics, b'{"topicConfigTable":{"x":{"topicName":"x","perm":"6"}}}', "x.perm: expected a whole number"),
        (Topics, b'{"topicConfigTable":{"x":{"topicName":"x","perm":true}}}', "x.perm: expected a whole number"),
        (Topics, b'{"dataVersion":{"counter":9223372036854775808}}', "expected a whole number of 64 bits"),
        (Topics, b'{"topicConfigTable":{"x":{"topicName":1}}}', "x.topicName: expected a string, found 1"),
        (Topics, b'{"topicConfigTable":{"x":{"topicName":"x","order":1}}}', "x.order: expected true or false"),
        (
            Topics,
            b'{"topicConfigTable":{"x":{"topicName":"x","topicFilterType":"6"}}}',
            "x.topicFilterType: expected SINGLE_TAG or MULTI_TAG, found '6'",
        ),
        (Topics, b'{"topicConfigTable":[]}', "topicConfigTable: expected an object"),
        (ConsumerOffsets, b'{"offsetTable":{"a@b":{"x":1}}}', "expected whole numbers as keys, found 'x'"),
        (BloomFilterData, b'{"bitPos":{}}', "bitPos: expected a list"),
        (BloomFilterData, b'{"bitPos":[1,"x"]}', "bitPos[1]: expected a whole number"),
    ],
)
def test_a_member_of_another_type_is_named(kind, data, reason):
    with pytest.raises(CorruptMetadataError) as caught:
        decode_metadata(kind, data)
    assert reason in caught.value.reason


topics = st.builds(
    TopicConfig,
    NAME, INT, INT, INT, st.sampled_from(TopicFilterType), INT, st.booleans(), st.dictionaries(NAME, NAME, max_size=3),
)  # fmt: skip


@given(st.builds(Topics, st.dictionaries(NAME, topics, max_size=3), st.builds(DataVersion, INT, INT, INT)))
def test_any_topics_come_back(value):
    assert decode_metadata(Topics, encode_metadata(value)) == value


@given(st.builds(ConsumerOffsets, st.dictionaries(NAME, st.dictionaries(INT, INT, max_size=3), max_size=3)))
def test_any_offsets_come_back(value):
    assert decode_metadata(ConsumerOffsets, encode_metadata(value)) == value
