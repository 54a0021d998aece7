"""Whatever was written, every view is exactly what the oracle says."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from views.compare import VIEWS, check
from views.scripts import ACTIONS, Action, Setting, play, settings_of


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(settings_of(), st.lists(ACTIONS, min_size=1, max_size=40))
def test_every_view_is_what_the_oracle_says(setting: Setting, script: list[Action]) -> None:
    world = setting.world()
    with world.buffer:
        for i, action in enumerate(script):
            if action[0] == "check":
                check(world, VIEWS[i % 5 :: 5])
            else:
                play(world, setting, action)
        check(world)
