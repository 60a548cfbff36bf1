#!/bin/sh
# Looks for programs that pip cannot install, by name: java (17 or newer, for Spark), flatc (which tests compare with)
# and chromium (in which tests open HTML pages). As root, installs Debian's packages of those that are missing; otherwise
# prints one line for each, which says what to install, and exits with status 1.
set -u

java_found() {
    if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; else java=java; fi
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}

flatc_found() {
    command -v flatc >/dev/null
}

chromium_found() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

packages_of() {
    case $1 in
        java) echo 'openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless' ;;
        flatc) echo 'flatbuffers-compiler' ;;
        chromium) echo 'chromium' ;;
    esac
}

wants() {
    case $1 in
        java) echo 'Spark needs Java 17 or newer, on PATH or in JAVA_HOME; install it' ;;
        flatc) echo 'the comparison with flatc needs flatc on PATH; install it' ;;
        chromium) echo 'the tests of HTML pages need Chromium on PATH; install it' ;;
    esac
}

# Debian releases differ in their versions of Java: the first package that exists is installed.
install_one_of() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 1
    printf 'shmarrow: installing one of Debian'\''s packages %s\n' "$*"
    [ -n "${updated:-}" ] || apt-get update -qq >/dev/null 2>&1
    updated=yes
    for package in "$@"; do
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$package" >/dev/null 2>&1 && return
    done
    return 1
}

missing=0
for program in "$@"; do
    "${program}_found" && continue
    # The list of packages is meant to be split at its spaces.
    install_one_of $(packages_of "$program") && "${program}_found" && continue
    printf 'shmarrow: %s (Debian: apt-get install %s)\n' "$(wants "$program")" "$(packages_of "$program" | cut -d ' ' -f 1)" >&2
    missing=1
done
exit $missing
