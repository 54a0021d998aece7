#!/usr/bin/env bash
# test_cpp.sh DIR [SANITIZERS]: builds the C++ tests in DIR and runs them.
# GoogleTest is the system's; else installed with apt-get (as root); else downloaded by CMake.
# Without any of them the tests are skipped, which is a failure when CI=true.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1 sanitize=${2:-}

# Compression is tested where the virtual environment has blosc2.
compression=()
if .venv/bin/python -c 'import importlib.util as u; exit(u.find_spec("blosc2") is None)' 2>/dev/null
then
  compression=(-DREPLAY_COMPRESSION=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python")
fi

configure() {
  cmake -S . -B "$dir" -G Ninja --log-level=WARNING -DREPLAY_BUILD_TESTS=ON \
    -DREPLAY_SANITIZE="$sanitize" -DREPLAY_FETCH_GTEST="$1" "${compression[@]}"
}
have_tests() { grep -q '^REPLAY_HAVE_TESTS:INTERNAL=ON' "$dir/CMakeCache.txt"; }

echo "C++ tests in $dir${sanitize:+ with -fsanitize=$sanitize}"
configure OFF
if ! have_tests && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install -y -qq libgtest-dev libbenchmark-dev && configure OFF || true
fi
if ! have_tests && ! configure ON; then
  echo "C++ tests in $dir SKIPPED: GoogleTest is not installed and could not be downloaded" >&2
  [ "${CI:-}" != true ]
  exit
fi
cmake --build "$dir"

# Old ThreadSanitizer runtimes do not start when the kernel randomises addresses over many bits.
run=(env)
if [ "$sanitize" = thread ] && setarch -R true 2>/dev/null; then run=(setarch -R); fi
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
"${run[@]}" ctest --test-dir "$dir" --output-on-failure --no-tests=error \
  -j "$(getconf _NPROCESSORS_ONLN)"
