"""A store against the simplest model of one: a list of messages for each queue, whatever happens in between."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.examples import examples
from tests.support.store_model import StoreModel

TestStoreModel = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")(StoreModel.TestCase)
TestStoreModel.settings = settings(max_examples=examples(25), stateful_step_count=20, deadline=None)
