#!/usr/bin/env bash
# test_valgrind.sh [GTEST_FILTER]: builds the C++ tests in build/valgrind and runs them under
# valgrind. An error or a leak fails. Without GoogleTest they are skipped: see configure_cpp.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/valgrind

echo "C++ tests in $dir under valgrind"
if ! command -v valgrind >/dev/null; then
  if [ "$(id -u)" = 0 ]; then apt-get install -y -qq valgrind; fi
fi
scripts/configure_cpp.sh $dir -DCMAKE_CXX_FLAGS="-g1 -DREPLAY_TEST_VALGRIND" ||
  exit $(($? == 77 ? 0 : 1))
cmake --build $dir --target replay_tests
# Valgrind runs one thread at a time: in turns, or one that spins would keep the others from going on.
valgrind --quiet --error-exitcode=1 --leak-check=full --fair-sched=yes \
  --suppressions=tests/cpp/valgrind.supp $dir/replay_tests --gtest_brief=1 --gtest_filter="${1:-*}"
