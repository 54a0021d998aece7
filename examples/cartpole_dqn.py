"""Solve CartPole with double DQN: actor threads fill one replay buffer, a learner samples it.

Everything but the buffer is in this file and needs NumPy only: the environment, the network with
its backward pass, Adam, the actors, the learner. Matplotlib, if installed, draws the curve.

    python examples/cartpole_dqn.py [--seed 0] [--prioritized] [--budget 200000] [--out out/demo]

Exit status: 0 when solved (a mean return of 475 or more over 20 greedy episodes, and again over 100
further ones), 1 when the budget of environment steps was spent first. The operating system
schedules the threads, so two runs with the same seed are alike but not identical.
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

# The matrices are tiny: BLAS threads would only fight with the actors. Read when NumPy is loaded.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from replay_buffer import BufferConfig, ReplayBuffer  # noqa: E402

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Seed = np.random.SeedSequence


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

    evaluate_every: int = 250  # updates
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
        self.age = np.zeros(count, np.int64)
        self.reset(np.ones(count, np.bool_))

    @property
    def observation(self) -> Floats:
        return self._state.astype(np.float32)

    def reset(self, which: Bools) -> None:
        self._state[which] = self._rng.uniform(-0.05, 0.05, (int(which.sum()), 4))
        self.age[which] = 0

    def step(self, action: Integers) -> tuple[Floats, Floats, Bools, Bools]:
        """Push left (0) or right (1); gives next observation, reward, terminated, truncated."""
        _, velocity, angle, spin = self._state.T
        force = np.where(action == 1, self.FORCE, -self.FORCE)
        mass = self.CART_MASS + self.POLE_MASS
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + self.POLE_MASS * self.HALF_LENGTH * spin**2 * sin) / mass
        spin_rate = (self.GRAVITY * sin - cos * push) / (
            self.HALF_LENGTH * (4.0 / 3.0 - self.POLE_MASS * cos**2 / mass)
        )
        acceleration = push - self.POLE_MASS * self.HALF_LENGTH * spin_rate * cos / mass
        self._state += self.DT * np.stack((velocity, acceleration, spin, spin_rate), axis=1)
        self.age += 1
        terminated = (np.abs(self._state[:, 0]) > self.X_LIMIT) | (
            np.abs(self._state[:, 2]) > self.ANGLE_LIMIT
        )
        truncated = ~terminated & (self.age >= self.STEP_LIMIT)
        return self.observation, np.ones(len(action), np.float32), terminated, truncated


class Network:
    """A multilayer perceptron of two hidden ReLU layers: observation to one value per action.

    All parameters live in one flat vector, `theta`; the weight matrices are views of it. So
    copying, averaging and optimising a network are each one operation on one array.
    """

    INPUT_SCALE = np.array([1.0, 0.5, 5.0, 0.5], np.float32)  # brings each observation near [-2, 2]

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self._shapes = [(4, hidden), (hidden, hidden), (hidden, 2)]
        self.theta = np.zeros(sum(i * o + o for i, o in self._shapes), np.float32)
        self._layers = self._views(self.theta)
        for weight, _ in self._layers:
            weight[:] = rng.normal(0.0, np.sqrt(2.0 / weight.shape[0]), weight.shape)
        self._layers[-1][0][:] *= 0.1  # start with values near zero
        self.gradient = np.zeros_like(self.theta)
        self._gradients = self._views(self.gradient)
        self._inputs: list[Floats] = []

    def _views(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        views, at = [], 0
        for fan_in, fan_out in self._shapes:
            end = at + fan_in * fan_out
            views.append((flat[at:end].reshape(fan_in, fan_out), flat[end : end + fan_out]))
            at = end + fan_out
        return views

    def forward(self, observation: Floats) -> Floats:
        x = observation * self.INPUT_SCALE
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

    def greedy(self, observation: Floats) -> Integers:
        best: Integers = np.argmax(self.forward(observation), axis=1)
        return best


class Adam:
    """Kingma and Ba (2015), on one flat parameter vector."""

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
    """Holds actors and learner to a fixed ratio of environment steps to updates on any machine.

    Without it the faster side would run away: thousands of updates on a handful of rows, or rows
    overwritten before they were learnt from. Also the one place that tells everybody to stop.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._stopped = False
        self.steps = 0
        self.updates = 0

    def _steps_due(self) -> int:
        return self._settings.warmup + self.updates * self._settings.steps_per_update

    def wait_to_step(self) -> bool:
        """Wait until more environment steps are due; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or self.steps < self._steps_due() + self._settings.slack
            )
            return not self._stopped

    def wait_to_update(self) -> bool:
        """Wait until there is experience for one more update; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self.steps >= self._steps_due())
            return not self._stopped

    def count(self, steps: int = 0, updates: int = 0) -> None:
        with self._changed:
            self.steps += steps
            self.updates += updates
            self._stopped |= self.steps >= self._settings.budget
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Policy:
    """The latest parameters for the actors. Each publication is a new array that nobody changes."""

    def __init__(self, theta: Floats) -> None:
        self.publish(theta)

    def publish(self, theta: Floats) -> None:
        self.theta = theta.copy()


class Actor:
    """One thread: plays several environments with an epsilon-greedy policy, stores every step."""

    def __init__(
        self, settings: Settings, buffer: ReplayBuffer, policy: Policy, pace: Pace, seed: Seed
    ) -> None:
        self._settings, self._buffer, self._policy, self._pace = settings, buffer, policy, pace
        self._rng = np.random.default_rng(seed)
        self._envs = CartPole(settings.envs_per_actor, self._rng)
        self._network = Network(settings.hidden, self._rng)  # its own: no shared scratch space
        self.add_ns: list[int] = []  # duration of each add_batch
        self.episodes: list[tuple[int, float]] = []  # (environment steps of all actors, return)

    def run(self) -> None:
        try:
            while self._pace.wait_to_step():
                self._step()
                self._pace.count(steps=self._settings.envs_per_actor)
        finally:
            self._pace.stop()  # an actor that fails must not leave the others waiting

    def _step(self) -> None:
        obs = self._envs.observation
        action = self._act(obs)
        next_obs, reward, terminated, truncated = self._envs.step(action)

        started = time.perf_counter_ns()
        self._buffer.add_batch(obs, action, reward, next_obs, terminated, truncated)
        self.add_ns.append(time.perf_counter_ns() - started)

        ended = terminated | truncated
        if ended.any():
            self.episodes += [(self._pace.steps, float(age)) for age in self._envs.age[ended]]
            self._envs.reset(ended)

    def _act(self, obs: Floats) -> Integers:
        self._network.theta[:] = self._policy.theta
        explore = self._rng.random(len(obs)) < self._settings.epsilon(self._pace.steps)
        anything = self._rng.integers(0, 2, len(obs))
        return np.where(explore, anything, self._network.greedy(obs))


class Learner:
    """Double DQN (van Hasselt et al., 2016) with a slowly following target network."""

    def __init__(self, settings: Settings, buffer: ReplayBuffer, seed: Seed) -> None:
        self._settings, self._buffer = settings, buffer
        self._rng = np.random.default_rng(seed)
        self._online = Network(settings.hidden, self._rng)
        self._target = Network(settings.hidden, self._rng)
        self._target.theta[:] = self._online.theta
        self._optimizer = Adam(self._online.theta.size, settings.learning_rate)
        self._rows = np.arange(settings.batch_size)
        self._batch: dict[str, Any] | None = None
        self.policy = Policy(self._online.theta)
        self.sample_ns: list[int] = []  # duration of each sample

    def update(self) -> None:
        """One gradient step on one batch."""
        settings, rows = self._settings, self._rows
        started = time.perf_counter_ns()
        # The first call makes the arrays, every later one writes into them.
        batch = self._batch = self._buffer.sample(settings.batch_size, out=self._batch)
        self.sample_ns.append(time.perf_counter_ns() - started)

        # Only a fallen pole ends the future. Where the time was up, the value goes on: bootstrap.
        next_action = self._online.greedy(batch["next_obs"])
        future = self._target.forward(batch["next_obs"])[rows, next_action] * ~batch["terminated"]
        # Rewards times (1 - gamma) keep every value in [0, 1], a good range for the network.
        goal = (1.0 - settings.gamma) * batch["reward"] + settings.gamma * future
        values = self._online.forward(batch["obs"])
        error = values[rows, batch["action"]] - goal

        gradient = np.zeros_like(values)
        gradient[rows, batch["action"]] = error / len(rows)
        if settings.prioritized:
            gradient *= batch["weights"][:, None]
            self._buffer.update_priorities(batch["indices"], np.abs(error))
        self._online.backward(gradient)
        self._optimizer.step(self._online.theta, self._online.gradient)
        self._target.theta += settings.target_rate * (self._online.theta - self._target.theta)
        if len(self.sample_ns) % settings.publish_every == 0:
            self.policy.publish(self._online.theta)

    def evaluate(self, episodes: int) -> Floats:
        """Returns of fresh greedy episodes, played side by side by the steadier target network."""
        envs = CartPole(episodes, self._rng)
        returns = np.zeros(episodes, np.float32)
        running = np.ones(episodes, np.bool_)
        while running.any():
            _, reward, terminated, truncated = envs.step(self._target.greedy(envs.observation))
            returns += reward * running
            running &= ~(terminated | truncated)
        return returns


class Progress:
    """On stderr: a bar that redraws itself on a terminal, a line every few seconds elsewhere."""

    WIDTH = 20

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._live = sys.stderr.isatty()
        self._pause = 0.1 if self._live else 2.0
        self._started = time.perf_counter()
        self._next = self._started + self._pause

    def show(self, pace: Pace, mean_return: float, last: bool = False) -> None:
        now = time.perf_counter()
        if now < self._next and not last:
            return
        self._next = now + self._pause
        filled = min(self.WIDTH, int(self.WIDTH * mean_return / self._settings.solved_at))
        line = (
            f"[{'#' * filled}{'.' * (self.WIDTH - filled)}] "
            f"return {mean_return:5.1f}/{self._settings.solved_at:.0f}  "
            f"{now - self._started:4.0f} s  {pace.steps:7,} steps  "
            f"epsilon {self._settings.epsilon(pace.steps):.2f}"
        )
        if self._live:
            line = "\r" + line[: shutil.get_terminal_size().columns - 1] + "\x1b[K"
        print(line, end="" if self._live and not last else "\n", file=sys.stderr, flush=True)


@dataclass
class Evaluation:
    steps: int
    seconds: float
    returns: Floats


@dataclass
class Outcome:
    """What a run leaves behind."""

    solved: bool = False
    seconds: float = 0.0
    steps: int = 0
    updates: int = 0
    confirmation: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)
    episodes: list[tuple[int, float]] = field(default_factory=list)
    add_ns: list[int] = field(default_factory=list)
    sample_ns: list[int] = field(default_factory=list)


def train(settings: Settings, buffer: ReplayBuffer) -> Outcome:
    """Run actors and learner until the task is solved or the budget is spent."""
    outcome = Outcome()
    pace, progress = Pace(settings), Progress(settings)
    learner_seed, *actor_seeds = np.random.SeedSequence(settings.seed).spawn(1 + settings.actors)
    learner = Learner(settings, buffer, learner_seed)
    actors = [Actor(settings, buffer, learner.policy, pace, seed) for seed in actor_seeds]
    started, mean_return = time.perf_counter(), 0.0
    with ThreadPoolExecutor(settings.actors, thread_name_prefix="actor") as pool:
        running = [pool.submit(actor.run) for actor in actors]
        try:
            while not outcome.solved and pace.wait_to_update():
                learner.update()
                pace.count(updates=1)
                if pace.updates % settings.evaluate_every == 0:
                    returns = learner.evaluate(settings.evaluation_episodes)
                    mean_return = float(returns.mean())
                    elapsed = time.perf_counter() - started
                    outcome.evaluations.append(Evaluation(pace.steps, elapsed, returns))
                    if mean_return >= settings.solved_at:  # luck? ask again, of more episodes
                        again = learner.evaluate(settings.confirmation_episodes)
                        outcome.confirmation = float(again.mean())
                        outcome.solved = outcome.confirmation >= settings.solved_at
                progress.show(pace, mean_return)
        finally:
            pace.stop()
    progress.show(pace, mean_return, last=True)
    for future in running:
        future.result()  # raises what an actor raised
    outcome.seconds = time.perf_counter() - started
    outcome.steps, outcome.updates = pace.steps, pace.updates
    outcome.sample_ns = learner.sample_ns
    outcome.add_ns = [ns for actor in actors for ns in actor.add_ns]
    outcome.episodes = sorted(episode for actor in actors for episode in actor.episodes)
    return outcome


def time_alone(buffer: ReplayBuffer, calls: int = 20_000) -> tuple[list[int], list[int]]:
    """Durations of `add` and `sample(32, out=)` with no other thread about."""
    obs, next_obs, clock = np.zeros(4, np.float32), np.ones(4, np.float32), time.perf_counter_ns
    add_ns, sample_ns = [], []
    for _ in range(calls):
        started = clock()
        buffer.add(obs, 1, 1.0, next_obs, False, False)
        add_ns.append(clock() - started)
    batch = buffer.sample(32)
    for _ in range(calls):
        started = clock()
        buffer.sample(32, out=batch)
        sample_ns.append(clock() - started)
    return add_ns, sample_ns


def report(settings: Settings, outcome: Outcome, buffer: ReplayBuffer) -> None:
    """Print throughput and latencies."""
    rows_sampled = outcome.updates * settings.batch_size
    print(f"\nthroughput over {outcome.seconds:.1f} s, evaluation included")
    print(f"  {outcome.steps / outcome.seconds:10,.0f} environment steps/s into the buffer")
    print(f"  {rows_sampled / outcome.seconds:10,.0f} samples/s out of it", end="")
    print(f" ({outcome.updates / outcome.seconds:,.0f} batches/s of {settings.batch_size})")

    alone_add, alone_sample = time_alone(buffer)
    rows = {
        f"add_batch({settings.envs_per_actor}), training": outcome.add_ns,
        f"sample({settings.batch_size}, out=), training": outcome.sample_ns,
        "add, alone": alone_add,
        "sample(32, out=), alone": alone_sample,
    }
    print(f"\n{'latency in microseconds':<28}{'calls':>9}", end="")
    print("".join(f"{name:>10}" for name in ("p50", "p90", "p99", "max")))
    for name, durations in rows.items():
        if not durations:
            continue
        marks = np.percentile(durations, (50, 90, 99, 100)) / 1e3
        print(f"  {name:<26}{len(durations):>9,}" + "".join(f"{mark:10,.2f}" for mark in marks))
    print("While training, a call's time includes its wait for the interpreter lock, which actors")
    print("and learner share; alone, one thread calls a quiet buffer. Clock reading included.")


def write_curve(settings: Settings, outcome: Outcome, folder: Path) -> None:
    """Write learning_curve.csv and, where Matplotlib is installed, learning_curve.png."""
    with open(folder / "learning_curve.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("environment_steps", "seconds", "mean_return", "min_return", "max_return"))
        for e in outcome.evaluations:
            summary = (e.returns.mean(), e.returns.min(), e.returns.max())
            table.writerow((e.steps, f"{e.seconds:.3f}", *(f"{value:.1f}" for value in summary)))
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"\n{folder / 'learning_curve.csv'} (no picture: matplotlib is not installed)")
        return

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    if outcome.episodes:
        when, scores = zip(*outcome.episodes, strict=True)
        axes.scatter(
            when, scores, s=6, color="#9aa5b1", linewidths=0, label="training episode (exploring)"
        )
    steps = [e.steps for e in outcome.evaluations]
    low, middle, high = (
        [float(f(e.returns)) for e in outcome.evaluations] for f in (np.min, np.mean, np.max)
    )
    count = settings.evaluation_episodes
    blue, green = "#1f77b4", "#2ca02c"
    label = f"worst to best of {count} greedy episodes"
    axes.fill_between(steps, low, high, color=blue, alpha=0.18, linewidth=0, label=label)
    label = f"mean of {count} greedy episodes"
    axes.plot(steps, middle, color=blue, linewidth=2, marker="o", markersize=3.5, label=label)
    label = f"solved: a mean of {settings.solved_at:.0f}"
    axes.axhline(settings.solved_at, color=green, linestyle="--", linewidth=1.5, label=label)
    ending = "solved" if outcome.solved else "not solved"
    kind = "prioritized" if settings.prioritized else "uniform"
    axes.set_title(
        f"Double DQN on CartPole, {kind} replay, seed {settings.seed}: "
        f"{ending} in {outcome.steps:,} steps, {outcome.seconds:.0f} s"
    )
    axes.set(xlabel="environment steps (all actors)", ylabel="return of an episode")
    axes.set(xlim=(0, None), ylim=(0, 520))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    figure.savefig(folder / "learning_curve.png", dpi=120)
    print(f"\nlearning curve: {folder / 'learning_curve.png'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--budget", type=int, default=Settings.budget, help="environment steps")
    parser.add_argument("--prioritized", action="store_true", help="sample by TD error")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the curve")
    options = parser.parse_args()
    if options.seed < 0 or options.budget < 1:
        parser.error("--seed must be 0 or more and --budget 1 or more")
    options.out.mkdir(parents=True, exist_ok=True)  # better to fail now than after the training
    settings = Settings(options.seed, options.budget, options.prioritized)

    config = BufferConfig(
        capacity=settings.capacity, strategy="prioritized" if settings.prioritized else "uniform"
    )
    with ReplayBuffer(config, obs_shape=(4,), action_dim=2, seed=settings.seed) as buffer:
        outcome = train(settings, buffer)
        if outcome.solved:
            print(
                f"solved after {outcome.steps:,} environment steps and {outcome.updates:,} updates "
                f"in {outcome.seconds:.1f} s: mean return {outcome.confirmation:.1f} over "
                f"{settings.confirmation_episodes} further greedy episodes"
            )
        report(settings, outcome, buffer)
    write_curve(settings, outcome, options.out)
    if not outcome.solved:
        best = max((float(e.returns.mean()) for e in outcome.evaluations), default=0.0)
        print(
            f"NOT solved within {settings.budget:,} environment steps: best mean return {best:.1f}"
            f", needed {settings.solved_at:.0f}. Try a larger --budget or another --seed.",
            file=sys.stderr,
        )
    return 0 if outcome.solved else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
