"""The contract of a buffer, as tests that anybody who makes one can run.

    from replay_buffer.testing import Conformance

    class TestMine(Conformance):
        @pytest.fixture
        def make_buffer(self):
            return lambda config, **columns: ReplayBuffer.create("shm:", config, **columns)

`make_buffer(config, **columns)` gives a new, empty buffer: `columns` is what `ReplayBuffer.create`
takes after the config (`schema`, or shapes and dtypes; `seed`). The fixture closes what it made.

Needs pytest, which `import replay_buffer` does not.
"""

import pytest

pytest.register_assert_rewrite(
    f"{__name__}.adding",
    f"{__name__}.crowd",
    f"{__name__}.drawing",
    f"{__name__}.laws",
    f"{__name__}.priorities",
    f"{__name__}.reading",
    f"{__name__}.steps",
    f"{__name__}.threads",
)

from .adding import Adding  # noqa: E402
from .content import MakeBuffer  # noqa: E402
from .drawing import Drawing  # noqa: E402
from .laws import Laws  # noqa: E402
from .priorities import Priorities  # noqa: E402
from .reading import Reading  # noqa: E402
from .steps import Steps  # noqa: E402
from .threads import Threads  # noqa: E402

__all__ = ["Conformance", "MakeBuffer"]


class Conformance(Adding, Reading, Drawing, Laws, Priorities, Steps, Threads):
    """Every rule of a buffer, over the fixture `make_buffer` of the class that derives from it."""
