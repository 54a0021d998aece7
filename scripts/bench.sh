#!/bin/sh
# Runs the micro-benchmarks: the Google Benchmark binary when it can be built, then every
# benchmarks/micro/*.py.
set -eu
cd "$(dirname "$0")/.."
cmake -S . -B out/release -G Ninja --log-level=WARNING -DREPLAY_BUILD_TESTS=OFF
cmake --build out/release
if [ -x out/release/benchmarks/replay_buffer_benchmarks ]; then
  REPLAY_BENCHMARKS=all out/release/benchmarks/replay_buffer_benchmarks --benchmark_repetitions=100
else
  echo "C++ micro-benchmarks SKIPPED: Google Benchmark is not installed" >&2
fi
for script in benchmarks/micro/[!_]*.py; do
  [ -e "$script" ] || continue
  echo "== $script"
  .venv/bin/python -m "$(echo "${script%.py}" | tr / .)"
done
