#!/bin/sh
# venv.sh NAME...: makes .venv when there is none and installs the named requirements of
# pyproject.toml ("build", or an extra) into it. Does nothing when they are already there.
set -eu
cd "$(dirname "$0")/.."
base=${PYTHON:-python3}

if ! [ -x .venv/bin/pip ]; then
  command -v "$base" >/dev/null || { echo "error: no $base; Python 3.10 or newer is needed" >&2; exit 1; }
  "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "error: $("$base" --version) is too old; name a newer one: make PYTHON=python3.12 ..." >&2
    exit 1
  }
  rm -rf .venv
  "$base" -m venv .venv || {
    echo "error: could not make a virtual environment (on Debian: apt-get install python3-venv)" >&2
    rm -rf .venv
    exit 1
  }
fi

list=.venv/requirements-$(echo "$@" | tr ' ' '-').txt
.venv/bin/python scripts/requirements.py "$@" >"$list.new"
if ! cmp -s "$list.new" "$list"; then
  echo "Installing: $(tr '\n' ' ' <"$list.new")"
  .venv/bin/pip install --quiet --disable-pip-version-check -r "$list.new"
  mv "$list.new" "$list"
fi
