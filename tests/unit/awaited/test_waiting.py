"""Every async call that waits, in every strategy and place: it goes on, times out, is cancelled, or
its buffer is closed; and takes what it should, or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from replay_buffer import Closed, Timeout
from unit.awaited.scenes import SCENES, facts

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
        assert facts(buffer) == before

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
