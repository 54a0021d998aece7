"""Any sequence of calls leaves what a model of a dozen lines says."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from replay_buffer import InvalidArgument, NotEnoughRows, RowGone
from unit.prioritized.law import live_ids, make, masses, rank_masses

CAPACITY = 19
EPSILON = 0.01
raw = st.floats(0, 1e6, width=32)
errors = st.floats(-1e6, 1e6, width=32)
poison = st.sampled_from([float("nan"), float("inf"), float("-inf")])


class PrioritizedMachine(RuleBasedStateMachine):
    """The model: raw priorities by row id, the maximum, and the exponent."""

    strategy = "prioritized"
    batches = Bundle("batches")

    def __init__(self) -> None:
        super().__init__()
        self.buffer = make(
            CAPACITY, self.strategy, alpha=0.5, epsilon=EPSILON, weights="none", block_rows=4
        )
        self.raws: dict[int, float] = {}
        self.given: set[int] = set()
        self.most = 1.0
        self.alpha = 0.5

    def _added(self, row: int, priority: float | None) -> None:
        self.raws[row] = self.most if priority is None else priority
        self.given.add(row)
        self.raws = {i: p for i, p in self.raws.items() if i > row - CAPACITY}

    @rule(priority=st.none() | raw)
    def add(self, priority: float | None) -> None:
        row = self.buffer.add(0) if priority is None else self.buffer.add(0, priority=priority)
        self._added(row, priority)
        self.most = max(self.most, self.raws[row])

    @rule(priorities=st.lists(raw, min_size=1, max_size=30))
    def add_batch(self, priorities: list[float]) -> None:
        for row, priority in zip(
            self.buffer.add_batch(np.arange(len(priorities)), priority=priorities),
            priorities,
            strict=True,
        ):
            self._added(int(row), priority)
        self.most = max(self.most, *priorities)

    @rule(n=st.integers(1, 30))
    def add_batch_without_priorities(self, n: int) -> None:
        for row in self.buffer.add_batch(np.arange(n)):
            self._added(int(row), None)

    @rule(target=batches, n=st.integers(1, 40))
    def sample(self, n: int) -> np.ndarray:
        if not self.raws:
            with pytest.raises(NotEnoughRows):
                self.buffer.sample(n)
            return np.empty(0, np.int64)
        batch = self.buffer.sample(n, beta=1.0)
        ids = np.array(sorted(self.raws, key=lambda i: i % CAPACITY))
        raws = [self.raws[i] for i in ids]
        if self.strategy == "prioritized":
            mass = masses(raws, self.alpha, EPSILON)
        else:
            mass = rank_masses(raws, self.alpha)
        place = {int(i): at for at, i in enumerate(ids)}
        drawn = [place[int(i)] for i in batch["indices"]]
        np.testing.assert_allclose(
            batch["weights"], mass.sum() / (len(mass) * mass[drawn]), rtol=2e-6
        )
        return batch["indices"]

    @rule(ids=consumes(batches), data=st.data())
    def update(self, ids: np.ndarray, data: st.DataObject) -> None:
        values = data.draw(st.lists(errors, min_size=len(ids), max_size=len(ids)))
        live = [int(i) for i in ids if int(i) in self.raws]
        assert self.buffer.update_priorities(ids, values) == len(live)
        for row, value in zip(ids, values, strict=True):
            if int(row) in self.raws:
                self.raws[int(row)] = abs(value)
                self.most = max(self.most, abs(value))

    @rule(ids=batches, bad=poison, place=st.integers(0, 39))
    def update_with_poison(self, ids: np.ndarray, bad: float, place: int) -> None:
        if len(ids):
            values = np.full(len(ids), 5.0)
            values[place % len(ids)] = bad
            with pytest.raises(InvalidArgument):
                self.buffer.update_priorities(ids, values)

    @rule(ids=batches, ahead=st.integers(1, 100))
    def update_with_an_unknown_id(self, ids: np.ndarray, ahead: int) -> None:
        unknown = max(self.given, default=-1) + ahead
        with pytest.raises(InvalidArgument):
            self.buffer.update_priorities([*ids, unknown], np.full(len(ids) + 1, 5.0))

    @rule(alpha=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    def change_alpha(self, alpha: float) -> None:
        self.buffer.alpha = self.alpha = alpha

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.raws = {}

    @invariant()
    def agrees_with_the_model(self) -> None:
        ids = sorted(self.raws)
        assert live_ids(self.buffer).tolist() == ids if ids else len(self.buffer) == 0
        assert self.buffer.priorities(ids).tolist() == [self.raws[i] for i in ids]
        assert self.buffer.max_priority == self.most
        total = masses(list(self.raws.values()), self.alpha, EPSILON).sum()
        assert self.buffer.total_priority == pytest.approx(total, rel=2e-6)
        for gone in self.given - self.raws.keys():
            with pytest.raises(RowGone):
                self.buffer.priorities([gone])
            break


class RankMachine(PrioritizedMachine):
    strategy = "rank"


profile = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=40)
TestPrioritized = PrioritizedMachine.TestCase
TestPrioritized.settings = profile
TestRank = RankMachine.TestCase
TestRank.settings = profile
