"""Every async call that waits, in every strategy and place: it goes on, times out, is cancelled, or
its buffer is closed; and takes what it should, or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from replay_buffer import BufferConfig, Closed, NotEnoughRows, ReplayBuffer, Timeout
from replay_buffer.testing.content import STRATEGIES
from unit.awaited.scenes import SCENES, add_rows, facts, numbered, until

pytestmark = pytest.mark.usefixtures("short_turns")
MOMENT = 0.01  # seconds in which a call that need not wait would be done
PATIENCE = 60  # seconds until somebody who should not wait is called hung


#: Where the rows are, and where calls run; on files they always run in threads.
PLACES = [("heap", "loop"), ("heap", "threads"), ("shm", "loop"), ("shm", "threads")]


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize(("place", "where"), [*PLACES, ("file", "threads")], indirect=["where"])
def test_a_call_that_waits_takes_nothing_until_it_goes_on(
    scene: Any, place: str, where: str, tmp_path: Path
) -> None:
    location = f"file:{tmp_path / 'rows'}" if place == "file" else f"{place}:"

    async def main() -> None:
        made = scene(location)
        buffer = made.buffer
        before = facts(buffer)
        with pytest.raises(Timeout, match=r" waited 0\.0 s: "):
            await made.call(MOMENT)
        assert facts(buffer) == before

        first, cancelled, second = (asyncio.create_task(made.call(None)) for _ in range(3))
        await asyncio.sleep(MOMENT)
        assert not any(task.done() for task in (first, cancelled, second))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        if before["limiter"] is not None:
            assert before["limiter"]["waiting"] == 0
            before["limiter"]["waiting"] = 1  # processes
        await until(lambda: facts(buffer) == before)

        await made.go_on()
        await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)
        moved = facts(buffer)[made.counted] - before[made.counted]
        assert moved == 2 * made.rows
        if before["limiter"] is not None:
            assert facts(buffer)["limiter"]["waiting"] == 0
        buffer.close()

        made = scene(location.replace("rows", "others"))
        waiting = [asyncio.create_task(made.call(None)) for _ in range(3)]
        await asyncio.sleep(MOMENT)
        made.buffer.close()
        for task in waiting:
            with pytest.raises(Closed):
                await asyncio.wait_for(task, PATIENCE)

    asyncio.run(main())


# ---- before the first row, and through a handle for reading


@pytest.mark.parametrize("limit", [{}, {"min_size": 2}], ids=["free", "limited"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_draw_waits_for_the_first_row_though_the_columns_are_not_known(
    where: str, strategy: Any, limit: dict[str, Any]
) -> None:
    async def main() -> None:
        timeout = None if limit else PATIENCE
        draws = [asyncio.create_task(buffer.sample_async(2, timeout=timeout)) for _ in range(3)]
        with pytest.raises(
            Timeout, match=r"^sample\(2\) waited 0\.0 s: (the buffer is empty|0 of 2)"
        ):
            await buffer.sample_async(2, timeout=MOMENT)
        draws[0].cancel()
        await buffer.add_async(k=1)
        await buffer.add_batch_async(k=[2, 3, 4])
        for batch in await asyncio.wait_for(asyncio.gather(*draws[1:]), PATIENCE):
            assert batch["k"].shape == (2,)

    buffer = ReplayBuffer(BufferConfig(20, strategy=strategy, **limit), seed=0)
    asyncio.run(main())


def test_a_view_waits_for_the_first_step_though_the_columns_are_not_known(where: str) -> None:
    async def main() -> None:
        draw = asyncio.create_task(view.sample_async(2, timeout=PATIENCE))
        await asyncio.sleep(MOMENT)
        with buffer.writer() as writer:
            for k in range(3):
                await writer.append_async([k], 0, 1.0, False, False)
        batch = await asyncio.wait_for(draw, PATIENCE)
        assert (batch["next_obs"] == batch["obs"] + 1).all()

    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), seed=0)
    view = buffer.view()
    asyncio.run(main())


def test_without_a_timeout_missing_rows_are_an_error_at_once(where: str) -> None:
    async def main() -> None:
        for buffer in (ReplayBuffer(BufferConfig(20)), numbered("heap:", strategy="fifo")):
            with pytest.raises(NotEnoughRows):
                await buffer.sample_async(2)

    asyncio.run(main())


def test_closing_a_buffer_whose_columns_are_not_known_ends_what_waits() -> None:
    async def main() -> None:
        draws = [asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE)) for _ in range(3)]
        await asyncio.sleep(MOMENT)
        buffer.close()
        for draw in draws:
            with pytest.raises(Closed):
                await asyncio.wait_for(draw, PATIENCE)

    buffer = ReplayBuffer(BufferConfig(20))
    asyncio.run(main())


def test_a_handle_for_reading_waits_for_rows_and_for_min_size(where: str, tmp_path: Path) -> None:
    async def main() -> None:
        draws = [asyncio.create_task(watcher.sample_async(2)) for _ in range(3)]
        await asyncio.sleep(MOMENT)
        assert not any(draw.done() for draw in draws)
        add_rows(buffer, 3)
        await asyncio.wait_for(asyncio.gather(*draws), PATIENCE)

    location = f"file:{tmp_path / 'rows'}"
    with numbered(location, min_size=3) as buffer:
        with ReplayBuffer.open(location, readonly=True) as watcher:
            asyncio.run(main())
        assert buffer.stats()["rows_sampled"] == 0
