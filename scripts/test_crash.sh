#!/usr/bin/env bash
# test_crash.sh [GTEST_FILTER]: builds the core with its crash points in out/crash, and runs the
# crash matrix. Without GoogleTest it is skipped: see configure_cpp.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=out/crash

echo "Crash matrix in $dir"
scripts/configure_cpp.sh $dir -DREPLAY_CRASH_POINTS=ON || exit $(($? == 77 ? 0 : 1))
cmake --build $dir --target replay_crash_tests
$dir/replay_crash_tests --gtest_brief=1 --gtest_filter="${1:-*}"
