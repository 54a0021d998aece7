"""The comparison with the oracle for as long as a soak takes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from views.compare import VIEWS, check
from views.scripts import ACTIONS, Action, Setting, play, settings_of

LONG = settings(
    max_examples=2500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.generate],
)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@LONG
@given(settings_of(), st.lists(ACTIONS, min_size=10, max_size=120))
def test_every_view_is_what_the_oracle_says_for_long(
    setting: Setting, script: list[Action]
) -> None:
    world = setting.world()
    with world.buffer:
        for i, action in enumerate(script):
            if action[0] == "check":
                check(world, VIEWS[i % 5 :: 5])
            else:
                play(world, setting, action)
        check(world)
