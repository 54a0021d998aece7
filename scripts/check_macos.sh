#!/usr/bin/env bash
# Compiles the core and the public headers for macOS on arm64, with the compiler of the ziglang
# package. Nothing is run: what this shows is that the halves in os/ for that system, and all above
# them, are C++ for it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=out/macos
if ! scripts/venv.sh macos; then
  echo "macOS arm64 SKIPPED: its compiler, the package ziglang, could not be installed" >&2
  [ "${CI:-}" != true ]
  exit
fi
mkdir -p "$out"
export ZIG_GLOBAL_CACHE_DIR=$PWD/$out/cache ZIG_LOCAL_CACHE_DIR=$PWD/$out/cache

compile() {
  local object
  object=out/macos/$(echo "$1" | tr / _).o
  [ "$object" -nt "$1" ] || .venv/bin/python -m ziglang c++ -target aarch64-macos -std=c++20 \
    -Wall -Wextra -Wno-unused-command-line-argument -Werror -Iinclude -Isrc/cpp -c "$1" -o "$object"
}
export -f compile
# A header may have changed: objects older than the newest one do not count.
newest=$(find include src/cpp -name '*.h' -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
find "$out" -name '*.o' ! -newer "$newest" -delete
# The consumer has the public headers.
printf '%s\0' src/cpp/{os,segment,core}/*.cc tests/cpp/package/consumer.cc |
  xargs -0 -n 1 -P "$(getconf _NPROCESSORS_ONLN)" bash -c 'compile "$0"'
echo "macOS arm64: $(find "$out" -maxdepth 1 -name "*.o" | wc -l) files compiled"
