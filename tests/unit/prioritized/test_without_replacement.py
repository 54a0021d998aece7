"""strategy="without_replacement": every stored row once, then again in another order."""

import numpy as np
import pytest

from replay_buffer import NotEnoughRows
from replay_buffer.testing.crowd import together
from unit.prioritized.law import UNLIKELY, draw, g_test, live_ids, make


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 17, 100, 1000])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_an_epoch_holds_every_row_once(rows: int, batch_size: int) -> None:
    buffer = make(rows + 3, "without_replacement")
    ids = buffer.add_batch(np.arange(rows))
    epochs = 6 * batch_size
    drawn = draw(buffer, epochs * rows, batch_size)[: epochs * rows].reshape(epochs, rows)
    assert np.array_equal(np.sort(drawn, axis=1), np.tile(ids, (epochs, 1)))


def test_a_batch_goes_on_into_the_next_epoch() -> None:
    buffer = make(10, "without_replacement")
    ids = buffer.add_batch(np.arange(10))
    first, second = buffer.sample(7)["indices"], buffer.sample(7)["indices"]
    assert set(first) | set(second[:3]) == set(ids)
    third = buffer.sample(6)["indices"]
    assert set(second[3:]) | set(third) == set(ids)
    counts = np.bincount(buffer.sample(35)["indices"])
    assert set(counts) == {3, 4}


@pytest.mark.parametrize("added", [100, 150, 201])
def test_epochs_after_the_wrap_hold_what_is_stored(added: int) -> None:
    buffer = make(100, "without_replacement", block_rows=7)
    buffer.add_batch(np.arange(added))
    for _ in range(5):
        assert np.array_equal(np.sort(buffer.sample(100)["indices"]), live_ids(buffer))


def test_epochs_differ_from_each_other() -> None:
    buffer = make(50, "without_replacement")
    buffer.add_batch(np.arange(50))
    epochs = {tuple(buffer.sample(50)["indices"]) for _ in range(100)}
    assert len(epochs) == 100


@pytest.mark.parametrize("rows", [2, 3, 5, 16, 30, 64, 300])
def test_every_row_is_as_likely_at_every_place_of_an_epoch(rows: int) -> None:
    buffer = make(rows, "without_replacement")
    buffer.add_batch(np.arange(rows))
    epochs = np.array([buffer.sample(rows)["indices"] for _ in range(4000)])
    for place in {0, rows // 2, rows - 1}:
        assert g_test(np.bincount(epochs[:, place], minlength=rows), np.ones(rows)) > UNLIKELY
    second = (epochs[:, 1] - epochs[:, 0]) % rows  # which row follows which
    assert g_test(np.bincount(second, minlength=rows)[1:], np.ones(rows - 1)) > UNLIKELY


def test_seeds_give_different_epochs_and_the_same_seed_the_same() -> None:
    def epochs(seed: int) -> np.ndarray:
        buffer = make(40, "without_replacement", seed=seed)
        buffer.add_batch(np.arange(40))
        return draw(buffer, 200, 10)

    assert np.array_equal(epochs(1), epochs(1))
    assert not np.array_equal(epochs(1), epochs(2))


def test_rows_added_meanwhile_are_in_the_next_epoch() -> None:
    buffer = make(30, "without_replacement")
    old = buffer.add_batch(np.arange(10))
    drawn = [buffer.sample(4)["indices"]]
    new = buffer.add_batch(np.arange(5))
    drawn.append(buffer.sample(6)["indices"])
    assert np.array_equal(np.sort(np.concatenate(drawn)), old)
    assert np.array_equal(np.sort(buffer.sample(15)["indices"]), [*old, *new])


def test_clear_begins_a_new_epoch() -> None:
    buffer = make(16, "without_replacement")
    buffer.add_batch(np.arange(10))
    buffer.sample(5)
    buffer.clear()
    ids = buffer.add_batch(np.arange(10))
    for _ in range(5):
        assert np.array_equal(np.sort(buffer.sample(10)["indices"]), ids)


def test_no_row_is_drawn_twice_in_an_epoch_while_the_ring_turns() -> None:
    buffer = make(20, "without_replacement")
    buffer.add_batch(np.arange(20))
    for step in range(50):
        epoch = []
        for _ in range(20):
            epoch.append(int(buffer.sample(1)["indices"][0]))
            if step % 3 == 0:
                buffer.add(0)
        assert len(set(epoch)) == 20


def test_several_threads_share_an_epoch() -> None:
    rows, threads = 8000, 4
    buffer = make(rows, "without_replacement")
    ids = buffer.add_batch(np.arange(rows))
    drawn: list[np.ndarray] = []

    def consume() -> None:
        drawn.extend(buffer.sample(20)["indices"] for _ in range(rows // threads // 20))

    together(*[consume] * threads)
    assert np.array_equal(np.sort(np.concatenate(drawn)), ids)


def test_an_empty_buffer_cannot_be_sampled() -> None:
    buffer = make(10, "without_replacement")
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    buffer.add(0)
    buffer.clear()
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
