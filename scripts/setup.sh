#!/bin/sh
# Make the virtual environment ready: `setup.sh run` for coop itself, `setup.sh dev`
# for its checks and tests too, `setup.sh system` for the system packages of the tests.
#
# Does nothing when it is ready already, so that `make check` works offline and with
# a read-only environment. VENV names the environment, PYTHON the interpreter.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

say() { printf '%s\n' "setup: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

as_root() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }

apt() (
    # The lists may be missing (fresh container) or stale, so they are read first.
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
    apt-get update -qq </dev/null >/dev/null || return 1
    # Not every release has every package: one that is missing must not keep out the others.
    available=
    for package in "$@"; do
        if apt-cache show --no-all-versions "$package" >/dev/null 2>&1; then
            available="$available $package"
        else
            say "this release has no package $package"
        fi
    done
    # shellcheck disable=SC2086  # a list of words
    apt-get install -y -qq --no-install-recommends $available </dev/null >/dev/null
)

without_services() {
    # The tests start daemons of their own; the machine's need not run, nor touch its firewall.
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
    result=0
    "$@" || result=$?
    rm -f "$policy"
    trap - EXIT INT TERM
    return $result
}

recent_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

find_python() {
    # /usr/bin first: a sandbox sees the host's /usr, not what lies in somebody's home.
    for candidate in /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3; do
        if recent_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    if [ -n "${PYTHON:-}" ]; then
        recent_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of 3.10 or newer"
        python=$PYTHON
    elif ! python=$(find_python); then
        as_root || fail "no Python of 3.10 or newer; install one: sudo apt-get install python3 python3-venv"
        say "installing python3"
        apt python3 python3-venv || fail "apt-get could not install python3 python3-venv"
        python=$(find_python) || fail "this distribution's python3 is older than 3.10; set PYTHON=/path/to/python3"
    fi
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        as_root || fail "$python lacks the venv module; install it: sudo apt-get install $package"
        say "installing $package"
        apt "$package" || fail "apt-get could not install $package"
    fi
    say "making $venv with $python"
    "$python" -m venv --clear "$venv"
}

# A change of what pyproject.toml says of the project (not of its tools), or a move of
# the checkout, installs anew.
key="$(sed '/^\[tool\./,$d' pyproject.toml | cksum) $PWD"

ready() { [ -f "$venv/.ready-$1" ] && [ "$(cat "$venv/.ready-$1")" = "$key" ]; }

install() {
    ready "$1" && return
    [ -z "${COOP_WORKSPACE:-}" ] || fail "$venv is not ready; run make setup outside the sandbox first"
    "$venv/bin/python" -c 'import pip' >/dev/null 2>&1 || make_venv
    # Dependency groups need pip 25.1; it also writes a console script that starts faster.
    pip="$venv/bin/python -m pip -qq --disable-pip-version-check --no-input"
    $pip install 'pip>=25.1' || fail "pip could not be upgraded; is a package index reachable?"
    say "installing coop and its dependencies ($1) into $venv"
    if [ "$1" = dev ]; then
        $pip install --editable . --group dev || fail "pip could not install the project"
    else
        $pip install --editable . || fail "pip could not install the project"
    fi
    printf '%s\n' "$key" >"$venv/.ready-$1"
}

system() {
    missing=
    for package in bubblewrap git gcc libc6-dev iproute2 nftables passt util-linux procps zsh fish \
        docker.io podman crun runc runsc docker-registry uidmap slirp4netns netavark catatonit rootlesskit \
        busybox-static mmdebstrap vim less htop openssh-server netcat-openbsd ncat socat connect-proxy; do
        status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $package"
    done
    [ -z "$missing" ] && return
    if ! as_root; then
        say "some tests will be skipped without:$missing (sudo apt-get install$missing)"
        return
    fi
    say "installing$missing"
    # shellcheck disable=SC2086  # a list of words
    without_services apt $missing || say "apt-get could not install$missing; the tests that need them will be skipped"
}

case "${1:-}" in
run | dev) install "$1" ;;
system)
    if command -v dpkg-query >/dev/null 2>&1; then system; fi
    ;;
*) fail "usage: setup.sh run|dev|system" ;;
esac
