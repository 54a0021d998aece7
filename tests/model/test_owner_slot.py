"""A slot of the owner table passes from the dead to the living, and nobody is taken for another."""

from __future__ import annotations

import pytest

from model.explore import Counterexample, explore
from model.owner_slot import OwnerSlot, SlotFault


def test_a_slot_changes_hands_whoever_is_killed_when() -> None:
    explored = explore(OwnerSlot(crashes=3))
    assert 250 < explored.states < 500
    assert explored.last > 20


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (SlotFault.EPOCH_FIRST, "the epoch went back"),
        (SlotFault.NO_EPOCH, "the epoch went back"),
        (SlotFault.FORGETS, "sums stay stale, and nobody knows"),
        (SlotFault.LISTS_ANOTHER, "the epoch went back"),
    ],
)
def test_every_way_to_confuse_owners_is_found(fault: SlotFault, rule: str) -> None:
    with pytest.raises(Counterexample) as found:
        explore(OwnerSlot(crashes=3, fault=fault))
    assert found.value.rule == rule
