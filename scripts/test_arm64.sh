#!/usr/bin/env bash
# test_arm64.sh [CTEST ARGUMENTS]: compiles the C++ tests for Linux on arm64, with Debian's cross
# compiler, and runs them under qemu-user. Its packages are installed with apt-get (as root); where
# they cannot be, the tests are skipped; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=out/arm64 gtest=/usr/src/googletest

# qemu-user cannot start threads in the forked child of a process that has some.
excluded=(OsParallelFor.WorksInAChildForkedInTheMiddleOfACall)

echo "C++ tests in $dir for arm64"
have() {
  command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64 && [ -d $gtest ]
} >/dev/null
if ! have && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install -y -qq g++-aarch64-linux-gnu qemu-user googletest || true
fi
if ! have; then
  echo "arm64 SKIPPED: it needs g++-aarch64-linux-gnu, qemu-user and googletest of Debian" >&2
  [ "${CI:-}" != true ]
  exit
fi

# blosc2 for that processor: a wheel whose static library is linked and whose Python never runs.
[ -d $dir/blosc2 ] || .venv/bin/pip install --quiet --disable-pip-version-check --no-deps \
  --only-binary=:all: --platform manylinux_2_28_aarch64 --target $dir/blosc2 blosc2
PYTHONPATH=$PWD/$dir/blosc2 scripts/configure_cpp.sh $dir \
  -DCMAKE_CXX_FLAGS=-DREPLAY_TEST_EMULATED -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu" \
  -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DREPLAY_FETCH_GTEST=ON \
  -DFETCHCONTENT_SOURCE_DIR_GOOGLETEST=$gtest
cmake --build $dir --target replay_tests
ctest --test-dir $dir --output-on-failure --no-tests=error -j "$(getconf _NPROCESSORS_ONLN)" \
  -E "^($(IFS='|'; echo "${excluded[*]}"))$" "$@"
