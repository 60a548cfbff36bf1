#!/bin/sh
# Makes .venv in the project root, or brings it up to date with pyproject.toml. Needs no more than Python 3.11 or newer.
# `venv.sh lowest` makes .venv-lowest, with the lowest versions that pyproject.toml allows.
set -eu
cd "$(dirname "$0")/.."

case ${1:-} in
    lowest)
        folder=.venv-lowest
        extras=arrow,tensor,test
        pythons='python3.11 python3.12 python3'
        ;;
    *)
        folder=.venv
        extras=dev,peers,connect,demo,bench
        pythons='python3.13 python3.12 python3.11 python3'
        ;;
esac

fail() {
    printf 'shmarrow: %s\n' "$1" >&2
    exit 1
}

recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for python in $pythons; do
        if recent "$python"; then
            printf '%s\n' "$python"
            return
        fi
    done
    fail "needs Python 3.11 or newer, and none of $pythons on PATH is that; install one"
}

if ! recent "$folder/bin/python"; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments; install its venv module (Debian: apt-get install python3-venv)"
    "$python" -m venv --clear "$folder"
fi
printf 'shmarrow: installing what pyproject.toml names into %s; minutes the first time\n' "$folder"
constraints=$folder/constraints.txt
if [ "$folder" = .venv-lowest ]; then
    # The list of extras is meant to be split at its commas.
    "$folder/bin/python" tools/lowest.py $(echo "$extras" | tr , ' ') >"$constraints"
else
    : >"$constraints"
fi
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" --editable ".[$extras]"
touch "$folder/installed"
