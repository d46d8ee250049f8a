"""One suite a port, run by every implementation."""

import pytest

pytest.register_assert_rewrite("tests.contracts.broker", "tests.contracts.sink", "tests.contracts.source")
