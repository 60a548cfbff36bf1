#!/bin/sh
# Looks for programs that pip cannot bring, by name: java (17 or newer, for Spark) and flatc (an oracle for tests).
# What is missing comes from Debian's packages when run as root; else one line says what to install, and exit is 1.
set -u

java_found() {
    if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; else java=java; fi
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}

flatc_found() {
    command -v flatc >/dev/null
}

packages_of() {
    case $1 in
        java) echo 'openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless' ;;
        flatc) echo 'flatbuffers-compiler' ;;
    esac
}

wants() {
    case $1 in
        java) echo 'Spark needs Java 17 or newer, on PATH or in JAVA_HOME; install it' ;;
        flatc) echo 'the comparison with flatc needs flatc on PATH; install it' ;;
    esac
}

# Debian releases differ in the Java that they carry: the first package that there is will do.
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
