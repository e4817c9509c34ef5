from __future__ import annotations

import pytest

from reput.config.dispatch_rules import DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError

#: What the stores of each version show: tags indexed, deliver time dispatched again, batch properties on the items.
RULES = {
    "4.9.7": (False, False, True),
    "5.3.3": (False, True, True),
    "5.5.0": (True, True, False),
    "5.5.1": (True, True, False),
}


def test_every_version_has_the_rules_that_its_stores_show() -> None:
    assert {
        str(rules): (rules.indexes_tags, rules.redispatches_deliver_time, rules.items_take_batch_properties)
        for rules in DispatchRules
    } == RULES


def test_a_store_is_told_its_rules_by_a_key_of_its_own() -> None:
    assert MessageStoreConfig.from_mapping({"dispatchRules": "5.5.0"}).dispatch_rules is DispatchRules.V5_5_0
    with pytest.raises(ConfigError, match=r"dispatchRules=5\.4: expected 4\.9\.7 or 5\.3\.3 or 5\.5\.0 or 5\.5\.1"):
        MessageStoreConfig(dispatch_rules="5.4")  # type: ignore[arg-type]
