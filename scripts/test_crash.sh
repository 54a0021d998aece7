#!/usr/bin/env bash
# test_crash.sh [GTEST_FILTER]: builds the core with its crash points in build/crash, and runs the
# crash matrix. Without GoogleTest it is skipped, as in test_cpp.sh, which gets it where it can.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/crash

# Compression is tested where the virtual environment has blosc2.
compression=()
if .venv/bin/python -c 'import importlib.util as u; exit(u.find_spec("blosc2") is None)' 2>/dev/null
then
  compression=(-DREPLAY_COMPRESSION=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python")
fi

configure() {
  cmake -S . -B $dir -G Ninja --log-level=WARNING -DREPLAY_BUILD_TESTS=ON -DREPLAY_CRASH_POINTS=ON \
    -DREPLAY_FETCH_GTEST="$1" "${compression[@]}"
}
have_tests() { grep -q '^REPLAY_HAVE_TESTS:INTERNAL=ON' $dir/CMakeCache.txt; }

echo "Crash matrix in $dir"
configure OFF
if ! have_tests && ! configure ON; then
  echo "Crash matrix SKIPPED: GoogleTest is not installed and could not be downloaded" >&2
  [ "${CI:-}" != true ]
  exit
fi
cmake --build $dir --target replay_crash_tests
$dir/replay_crash_tests --gtest_brief=1 --gtest_filter="${1:-*}"
