#!/bin/sh
# test_python.sh [PYTEST ARGUMENTS]: runs the Python tests against the package installed in .venv.
set -eu
cd "$(dirname "$0")/.."
exec .venv/bin/python -m pytest "$@"
