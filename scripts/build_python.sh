#!/bin/sh
# Builds the package and installs it into .venv. Incremental: out/python is kept between runs.
set -eu
cd "$(dirname "$0")/.."
export CMAKE_GENERATOR=Ninja
echo "Building the Python package"
.venv/bin/pip install . --quiet --disable-pip-version-check --no-build-isolation \
  --config-settings=build-dir=out/python
