"""Solve CartPole with double DQN: actor threads fill one replay buffer, a learner samples it.

Everything but the buffer is in this file and needs NumPy only: the environment, the network with its
backward pass, Adam, the actors and the learner. Matplotlib, if installed, draws the learning curve.

    python examples/cartpole_dqn.py [--seed 0] [--prioritized] [--budget 200000] [--out out/demo]

Exit status: 0 when solved (20 greedy episodes in a row with a mean return of 475 or more), 1 when
the budget of environment steps ran out first. Threads are scheduled by the operating system, so two runs
with the same seed are alike but not identical.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The matrices are tiny: a BLAS thread pool would only fight with the actors. Read when NumPy is loaded.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from replay_buffer import BufferConfig, ReplayBuffer  # noqa: E402

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """Every number of the experiment, in one place."""

    seed: int = 0
    budget: int = 200_000  # environment steps
    prioritized: bool = False

    actors: int = 2
    envs_per_actor: int = 8
    capacity: int = 50_000
    warmup: int = 1_000  # random steps before the first update
    steps_per_update: int = 2  # environment steps for each gradient step
    slack: int = 64  # environment steps the actors may run ahead

    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000

    hidden: int = 64
    batch_size: int = 64
    gamma: float = 0.99
    learning_rate: float = 1e-3
    target_rate: float = 0.02  # Polyak averaging of the target network, per update
    publish_every: int = 10  # updates between two policies handed to the actors

    evaluate_every: int = 500  # updates
    evaluation_episodes: int = 20
    confirmation_episodes: int = 100
    solved_at: float = 475.0

    def epsilon(self, steps: int) -> float:
        """Exploration after so many environment steps: a straight line, then flat."""
        done = min(1.0, steps / self.epsilon_steps)
        return self.epsilon_start + done * (self.epsilon_end - self.epsilon_start)


class CartPole:
    """N carts at once, from the equations of Barto, Sutton and Anderson (1983); CartPole-v1 limits.

    `step` never resets: it returns the true next observation, also when the episode ends there, and
    says apart whether the pole fell or the cart left (terminated) or the time was up (truncated).
    """

    GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, DT = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
    X_LIMIT, ANGLE_LIMIT, STEP_LIMIT = 2.4, np.deg2rad(12.0), 500

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._state = np.zeros((count, 4))  # x, x', angle, angle'
        self._age = np.zeros(count, np.int64)
        self.reset(np.ones(count, np.bool_))

    @property
    def observation(self) -> Floats:
        return self._state.astype(np.float32)

    def reset(self, which: Bools) -> None:
        self._state[which] = self._rng.uniform(-0.05, 0.05, (int(which.sum()), 4))
        self._age[which] = 0

    def step(self, action: Integers) -> tuple[Floats, Floats, Bools, Bools]:
        """Push left (0) or right (1); gives next observation, reward, terminated, truncated."""
        x, velocity, angle, spin = self._state.T
        force = np.where(action == 1, self.FORCE, -self.FORCE)
        mass = self.CART_MASS + self.POLE_MASS
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + self.POLE_MASS * self.HALF_LENGTH * spin**2 * sin) / mass
        spin_rate = (self.GRAVITY * sin - cos * push) / (
            self.HALF_LENGTH * (4.0 / 3.0 - self.POLE_MASS * cos**2 / mass)
        )
        acceleration = push - self.POLE_MASS * self.HALF_LENGTH * spin_rate * cos / mass
        self._state += self.DT * np.stack((velocity, acceleration, spin, spin_rate), axis=1)
        self._age += 1
        terminated = (np.abs(self._state[:, 0]) > self.X_LIMIT) | (
            np.abs(self._state[:, 2]) > self.ANGLE_LIMIT
        )
        truncated = ~terminated & (self._age >= self.STEP_LIMIT)
        return self.observation, np.ones(len(action), np.float32), terminated, truncated


class Network:
    """A multilayer perceptron of two hidden ReLU layers: observation to one value per action.

    All parameters live in one flat vector, `theta`; the weight matrices are views of it. So copying,
    averaging and optimising a network are each one operation on one array.
    """

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.sizes = sizes
        self.theta = np.zeros(sum((i + 1) * o for i, o in zip(sizes, sizes[1:], strict=False)), np.float32)
        self._layers = self._views(self.theta)
        for weight, _ in self._layers:
            weight[:] = rng.normal(0.0, np.sqrt(2.0 / weight.shape[0]), weight.shape)
        self._layers[-1][0][:] *= 0.1  # start with values near zero
        self.gradient = np.zeros_like(self.theta)
        self._gradients = self._views(self.gradient)
        self._inputs: list[Floats] = []

    def _views(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        views, at = [], 0
        for fan_in, fan_out in zip(self.sizes, self.sizes[1:], strict=False):
            weight = flat[at : at + fan_in * fan_out].reshape(fan_in, fan_out)
            at += weight.size
            views.append((weight, flat[at : at + fan_out]))
            at += fan_out
        return views

    def forward(self, x: Floats) -> Floats:
        self._inputs = []
        last = len(self._layers) - 1
        for depth, (weight, bias) in enumerate(self._layers):
            self._inputs.append(x)
            x = x @ weight
            x += bias
            if depth < last:
                np.maximum(x, 0.0, out=x)
        return x

    def backward(self, upstream: Floats) -> None:
        """Fill `gradient`, given d(loss)/d(output) for the inputs of the last `forward`."""
        for depth in reversed(range(len(self._layers))):
            x, (weight_gradient, bias_gradient) = self._inputs[depth], self._gradients[depth]
            np.matmul(x.T, upstream, out=weight_gradient)
            upstream.sum(axis=0, out=bias_gradient)
            if depth:
                upstream = upstream @ self._layers[depth][0].T
                upstream *= x > 0.0  # the ReLU that made x let only these through


class Adam:
    def __init__(self, size: int, rate: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self._mean, self._square = np.zeros((2, size), np.float32)
        self._rate, self._betas, self._time = rate, betas, 0

    def step(self, theta: Floats, gradient: Floats) -> None:
        self._time += 1
        first, second = self._betas
        self._mean += (1.0 - first) * (gradient - self._mean)
        self._square += (1.0 - second) * (gradient * gradient - self._square)
        rate = self._rate * np.sqrt(1.0 - second**self._time) / (1.0 - first**self._time)
        theta -= rate * self._mean / (np.sqrt(self._square) + 1e-8)


class Pace:
    """Holds actors and learner to a fixed ratio of environment steps to updates, whatever the machine.

    Without it the faster side would run away: thousands of updates on a handful of rows, or rows
    overwritten before they were ever learnt from. Also the one place that says "stop" to everybody.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._stopped = False
        self.steps = 0
        self.updates = 0

    def _steps_due(self) -> int:
        return self._settings.warmup + self.updates * self._settings.steps_per_update

    def claim_steps(self, count: int) -> bool:
        """Wait until `count` more environment steps are due; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or self.steps < self._steps_due() + self._settings.slack
            )
            self.steps += count
            self._changed.notify_all()
            return not self._stopped

    def claim_update(self) -> bool:
        """Wait until the buffer holds enough for one more update; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self.steps >= self._steps_due())
            self.updates += 1
            self._changed.notify_all()
            return not self._stopped

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
