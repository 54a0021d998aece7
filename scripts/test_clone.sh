#!/usr/bin/env bash
# Runs the commands of the README's C++ part, word for word, in a fresh copy of the sources: they
# build the C++ library, run its tests, and run its benchmarks in four ways.
# Without GoogleTest or Google Benchmark they would show little: then the tests run as test_cpp.sh has
# it, which downloads GoogleTest.
set -euo pipefail
cd "$(dirname "$0")/.."
clone=out/clone

have() { echo "#include <$1>" | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; }
have_all() { have gtest/gtest.h && have benchmark/benchmark.h; }
if ! have_all && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install -y -qq libgtest-dev libbenchmark-dev || true
fi
if ! have_all; then
  echo "The README's C++ commands SKIPPED: GoogleTest or Google Benchmark is not installed" >&2
  exec scripts/test_cpp.sh out/cpp
fi

commands=$(sed -n '/^# Configure and build$/,/^```$/p' README.md | sed '$d')
echo "The README's C++ commands in $clone"
rm -rf "$clone"
mkdir -p "$clone"
cp -R CMakeLists.txt cmake include src tests benchmarks "$clone"

# How they run, not what they do. The virtual environment has what compresses columns.
export PATH=$PWD/.venv/bin:$PATH
cores=$(getconf _NPROCESSORS_ONLN)
export CMAKE_BUILD_PARALLEL_LEVEL=$cores CTEST_PARALLEL_LEVEL=$cores
if command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cd "$clone"
bash -euxo pipefail -c "$commands"
cmake --install build --prefix prefix --component cpp >/dev/null  # for the Python tests
