#!/usr/bin/env bash
# test_valgrind.sh [GTEST_FILTER]: builds the C++ tests in out/valgrind and runs them under
# valgrind. An error or a leak fails. Without GoogleTest they are skipped: see configure_cpp.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=out/valgrind

echo "C++ tests in $dir under valgrind"
if ! command -v valgrind >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install -y -qq valgrind || true
fi
if ! command -v valgrind >/dev/null; then
  echo "valgrind SKIPPED: it is not installed" >&2
  [ "${CI:-}" != true ]
  exit
fi
scripts/configure_cpp.sh $dir -DCMAKE_CXX_FLAGS="-g1 -DREPLAY_TEST_VALGRIND" ||
  exit $(($? == 77 ? 0 : 1))
cmake --build $dir --target replay_tests

# Valgrind refuses reservations of 128 GB and more, with an error of its own.
excluded=OsMemory.ImpossibleReservationsAreErrors:Capacities/LastLap.*/6
excluded+=:TypedVariedRows.ShortOnesTakeLittleMemoryInALargeBuffer
excluded+=:TypedBuffer.ABatchThatDoesNotFitInMemoryIsOutOfSpace
# It runs one thread at a time: in fair turns, so that one that spins lets the others go on.
valgrind --quiet --error-exitcode=9 --leak-check=full --fair-sched=yes \
  --suppressions=tests/cpp/valgrind.supp \
  $dir/replay_tests --gtest_brief=1 --gtest_filter="${1:-*}-$excluded"
