"""Store transitions, sample a batch, give the sampled rows new priorities."""

import numpy as np

from replay_buffer import BufferConfig, ReplayBuffer

# A million pairs of Atari frames: memory is reserved now and used as rows are written.
config = BufferConfig(capacity=1_000_000, strategy="prioritized", alpha=0.6, beta=0.4)
buffer = ReplayBuffer(config, obs_shape=(84, 84, 4), action_dim=6, seed=0)

# The first add settles what was left open: uint8 frames, a discrete action below 6.
rng = np.random.default_rng(0)
obs = rng.integers(0, 256, (84, 84, 4), dtype=np.uint8)
for step in range(200):
    next_obs = rng.integers(0, 256, (84, 84, 4), dtype=np.uint8)
    action, reward, done = int(rng.integers(6)), float(step % 2), step % 50 == 49
    buffer.add(obs, action, reward, next_obs, done)
    obs = next_obs

# A batch is a plain dict of NumPy arrays.
batch = buffer.sample(batch_size=32)
for name, column in batch.items():
    print(f"{name:<10} {column.dtype!s:<8} {column.shape}")

# After a training step: rows with large errors are drawn more often from now on.
td_errors = rng.random(32)
updated = buffer.update_priorities(batch["indices"], td_errors)
print(f"{updated} of 32 priorities updated, {len(buffer)} of {buffer.capacity:,} rows in use")

# In a training loop, sample into the same arrays again: nothing is allocated.
buffer.sample(32, out=batch)
buffer.close()
