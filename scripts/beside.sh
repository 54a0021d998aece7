#!/usr/bin/env bash
# beside.sh COMMAND COMMAND: runs two commands at the same time. Fails when one of them does.
set -uo pipefail
cd "$(dirname "$0")/.."
bash -c "$1" &
first=$!
bash -c "$2"
second=$?
wait $first && exit $second
