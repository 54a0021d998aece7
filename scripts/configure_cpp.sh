#!/usr/bin/env bash
# configure_cpp.sh DIR OPTION...: configures the C++ tests in DIR, with options of CMake.
# GoogleTest is the system's; else installed with apt-get (as root); else downloaded by CMake.
# Without any of them there are no tests, and the status is 77; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1 options=("${@:2}")

# Compression is tested where the virtual environment has blosc2.
if .venv/bin/python -c 'import importlib.util as u; exit(u.find_spec("blosc2") is None)' 2>/dev/null
then
  options+=(-DREPLAY_COMPRESSION=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python")
fi

configure() {
  cmake -S . -B "$dir" -G Ninja --log-level=WARNING -DREPLAY_BUILD_BENCHMARKS=OFF \
    -DREPLAY_FETCH_GTEST="$1" "${options[@]}"
}
have_tests() { grep -q '^REPLAY_HAVE_TESTS:INTERNAL=ON' "$dir/CMakeCache.txt"; }

configure OFF
if ! have_tests && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install -y -qq libgtest-dev libbenchmark-dev && configure OFF || true
fi
if ! have_tests && ! configure ON; then
  echo "Tests in $dir SKIPPED: GoogleTest is not installed and could not be downloaded" >&2
  [ "${CI:-}" = true ] && exit 1
  exit 77
fi
