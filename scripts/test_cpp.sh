#!/usr/bin/env bash
# test_cpp.sh DIR [SANITIZERS]: builds the C++ tests in DIR and runs them.
# Without GoogleTest they are skipped: see configure_cpp.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1 sanitize=${2:-}

echo "C++ tests in $dir${sanitize:+ with -fsanitize=$sanitize}"
# The least version of C++ is tested here, the newest one by test_clone.sh.
scripts/configure_cpp.sh "$dir" -DREPLAY_SANITIZE="$sanitize" -DCMAKE_CXX_STANDARD=20 || exit $(($? == 77 ? 0 : 1))
cmake --build "$dir"

# Old ThreadSanitizer runtimes do not start when the kernel randomises addresses over many bits.
run=(env)
if [ "$sanitize" = thread ] && setarch -R true 2>/dev/null; then run=(setarch -R); fi
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
"${run[@]}" ctest --test-dir "$dir" --output-on-failure --no-tests=error \
  -j "$(getconf _NPROCESSORS_ONLN)"
