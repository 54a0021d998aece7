#!/bin/sh
# Lint, formatting and types of the Python sources. Reports everything, then fails.
set -u
cd "$(dirname "$0")/.."
failed=0
.venv/bin/ruff check . || failed=1
.venv/bin/ruff format --check . || failed=1
.venv/bin/mypy --strict || failed=1
exit $failed
