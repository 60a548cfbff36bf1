#!/bin/sh
# Makes .venv in the project root, or brings it up to date with pyproject.toml. Needs no more than Python 3.11 or newer.
set -eu
cd "$(dirname "$0")/.."

fail() {
    printf 'shmarrow: %s\n' "$1" >&2
    exit 1
}

recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for python in python3.13 python3.12 python3.11 python3; do
        if recent "$python"; then
            printf '%s\n' "$python"
            return
        fi
    done
    fail 'needs Python 3.11 or newer, and no python3.13, python3.12, python3.11 or python3 on PATH is that; install one'
}

if ! recent .venv/bin/python; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments; install its venv module (Debian: apt-get install python3-venv)"
    "$python" -m venv --clear .venv
fi
printf 'shmarrow: installing what pyproject.toml names into .venv; minutes the first time\n'
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,peers,demo]'
touch .venv/installed
