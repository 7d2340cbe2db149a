#!/bin/sh
# Run the unit tests and the wheel's on every CPython of this machine, 3.10 and newer,
# each in an environment of its own (.venv-3.N), which is kept for the next time.
set -eu
cd "$(dirname "$0")/.."
done=
for minor in 10 11 12 13 14 15; do
    python=
    # pyenv's programs on PATH work only for versions that are switched on.
    for candidate in python3.$minor "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
        "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1 && python=$candidate && break
    done
    [ -n "$python" ] || continue
    printf '\n%s\n' "$("$python" --version)"
    VENV=.venv-3.$minor PYTHON=$python scripts/setup.sh dev
    ".venv-3.$minor/bin/python" -m pytest -q tests/unit tests/wheel
    done="$done 3.$minor"
done
[ -n "$done" ] || {
    echo "pythons: found no python3.10 or newer on PATH" >&2
    exit 1
}
printf '\npassed on%s\n' "$done"
