#!/usr/bin/env bash
# Formatting and static analysis of the C++ sources. Reports everything, then fails.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0

mapfile -t files < <(find include src/cpp tests/cpp benchmarks/micro -name '*.h' -o -name '*.cc' | sort)
clang-format --dry-run --Werror "${files[@]}" || failed=1

cmake -S . -B build/tidy -G Ninja --log-level=WARNING -DREPLAY_BUILD_PYTHON=ON \
  -DPython_EXECUTABLE="$PWD/.venv/bin/python" || exit 1
find src/cpp -name '*.cc' -print0 | sort -z |
  xargs -0 -n 1 -P "$(getconf _NPROCESSORS_ONLN)" clang-tidy -p build/tidy --quiet || failed=1
exit $failed
