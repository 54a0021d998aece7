#!/usr/bin/env bash
# Lint, formatting and types of Python; formatting and static analysis of C++.
# Reports everything, then fails if anything was reported.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin failed=0
step() { echo "== $*" | cut -c1-100; "$@" || failed=1; }

step $bin/ruff check .
step $bin/ruff format --check .
step $bin/mypy --strict

mapfile -t files < <(find include src/cpp tests/cpp tests/crash benchmarks/micro -name '*.h' -o -name '*.cc' | sort)
step $bin/clang-format --dry-run --Werror "${files[@]}"

cmake -S . -B out/tidy -G Ninja --log-level=WARNING -DREPLAY_BUILD_PYTHON=ON \
  -DREPLAY_BUILD_TESTS=OFF -DREPLAY_BUILD_BENCHMARKS=OFF -DREPLAY_COMPRESSION=ON \
  -DPython_EXECUTABLE="$PWD/$bin/python" || exit 1
mapfile -t files < <(find src/cpp -name '*.cc' | sort)
step xargs -n 1 -P "$(getconf _NPROCESSORS_ONLN)" $bin/clang-tidy -p out/tidy --quiet \
  <<<"${files[*]}"
exit $failed
