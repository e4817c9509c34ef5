import pytest

from reput.errors import SubscriptionError
from reput.remoting.subscription_data import SubscriptionData, build_subscription_data


@pytest.mark.parametrize("text", [None, "", "*"])
def test_all_messages_are_wanted_without_tags(text):
    assert build_subscription_data("t", text, sub_version=3) == SubscriptionData("t", "*", sub_version=3)


def test_tags_are_separated_trimmed_and_hashed_as_in_java():
    data = build_subscription_data("t", "TagA || \tTagB||TagA|| ", "TAG", sub_version=3)
    assert data.sub_string == "TagA || \tTagB||TagA|| "
    assert data.tags == {"TagA", "TagB"}
    assert data.codes == {2598919, 2598920}
    assert (data.sub_version, data.expression_type, data.class_filter_mode) == (3, "TAG", False)


@pytest.mark.parametrize(
    ("text", "tags"), [("|||", {"|"}), ("a|b", {"a|b"}), (" ", set()), ("* || a", {"*", "a"}), ("\u00a0a", {"\u00a0a"})]
)
def test_odd_texts_are_read_as_java_reads_them(text, tags):
    assert build_subscription_data("t", text).tags == tags


def test_an_expression_is_kept_as_it_is():
    data = build_subscription_data("t", "a > 1 || b", "SQL92", sub_version=3)
    assert data == SubscriptionData("t", "a > 1 || b", sub_version=3, expression_type="SQL92")


@pytest.mark.parametrize(
    ("text", "kind", "remark"),
    [
        ("||", None, "subString split error"),
        ("||||", "TAG", "subString split error"),
        ("", "SQL92", "Expression can't be null! SQL92"),
        (None, "SQL92", "Expression can't be null! SQL92"),
    ],
)
def test_a_subscription_to_nothing_is_refused(text, kind, remark):
    with pytest.raises(SubscriptionError, match=remark):
        build_subscription_data("t", text, kind)
