"""Eight environments write steps; a learner draws three-step transitions of stacked frames.

Every frame is stored once: four of them in an observation, and four more in the next one, are put
together when a batch is drawn.
"""

import numpy as np

from replay_buffer import BufferConfig, FrameStack, NStep, ReplayBuffer

STREAMS = 8
rng = np.random.default_rng(0)


def step_environments(frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What came of one step in each: the next frames, rewards, and whether an episode is over."""
    return np.roll(frames, 1, axis=2), rng.random(STREAMS, np.float32), rng.random(STREAMS) < 0.02


config = BufferConfig(capacity=20_000, storage="steps", strategy="prioritized")
buffer = ReplayBuffer(config, obs_shape=(84, 84), obs_dtype="uint8", action_dim=6, seed=0)
learner = buffer.view(FrameStack(4), NStep(3, gamma=0.99))

frames = rng.integers(0, 256, (STREAMS, 84, 84), dtype=np.uint8)
with buffer.writer(streams=STREAMS) as writer:
    for _ in range(500):
        actions = rng.integers(6, size=STREAMS)
        after, rewards, over = step_environments(frames)
        writer.append(frames, actions, rewards, over, np.zeros(STREAMS, bool), final_obs=after)
        frames = np.where(over[:, None, None], rng.integers(0, 256, after.shape, np.uint8), after)

batch = learner.sample(32)
values = np.zeros(32, np.float32)  # V(batch["next_obs"]), of a network
target = batch["reward"] + batch["discount"] * values
buffer.update_priorities(batch["indices"], target)

print(f"{buffer!r}")
print(f"observations {batch['obs'].shape}, steps taken {np.bincount(batch['k'])[1:]}")
stats = buffer.stats()["episodes"]
print(f"{stats['finished']} episodes, mean length {stats['steps'] / stats['finished']:.1f}")
