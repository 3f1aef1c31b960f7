# shellcheck shell=bash
# What the scripts share: saying what is done, packages of the distribution, and the project's own
# virtual environment, made from the lock files and remade when they change.
# Not for: anything the product itself needs at run time. Sourced, never run.
# Known limit: packages are installed with apt-get alone (Debian 12/13, Ubuntu 24.04); elsewhere the
# scripts say what is missing and go on where they can.

shopt -s inherit_errexit
# The same in every locale and under every umask of the caller.
export LC_ALL=C.UTF-8
umask 022
# Where the caller forbids Python to keep what it compiled, every process started here, and the tests
# start thousands, would compile the project anew: two seconds of CPU for each engine.
unset PYTHONDONTWRITEBYTECODE

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
# What the environment was made from; written last, so that a half-made one is made again.
VENV_STAMP=$VENV/.enlist-lock

say() { printf '%s\n' ">> $*" >&2; }
warn() { printf '%s\n' "!! $*" >&2; }
die() {
    warn "$*"
    exit 1
}

# --- packages of the distribution ------------------------------------------------------------

# Runs a command as root, or says that it cannot. sudo may ask for a password on a terminal only.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        if [ -t 0 ] && [ -t 2 ] && [ "${CI:-}" != true ]; then
            sudo "$@"
        else
            sudo -n "$@"
        fi
    else
        return 1
    fi
}

can_be_root() {
    [ "$(id -u)" -eq 0 ] && return 0
    command -v sudo >/dev/null 2>&1 || return 1
    if [ -t 0 ] && [ -t 2 ] && [ "${CI:-}" != true ]; then
        return 0
    fi
    sudo -n true 2>/dev/null
}

package_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Debian starts a database cluster when the server package is installed. The tests make their own,
# so the file that says no is laid first, unless the administrator already has one.
keep_postgres_from_starting() {
    local conf=/etc/postgresql-common/createcluster.conf
    [ -e "$conf" ] && return 0
    say "Writing $conf (create_main_cluster = false), so that no database server starts by itself"
    as_root mkdir -p "$(dirname "$conf")" &&
        printf 'create_main_cluster = false\n' | as_root tee "$conf" >/dev/null
}

APT_UPDATED=no

# install_packages PACKAGE...: installs those that are missing, tells what it does, and returns
# non-zero, having said why, when it could not.
install_packages() {
    local package log
    local -a missing=()
    command -v dpkg-query >/dev/null 2>&1 || {
        warn "No dpkg here; not installing: $*"
        return 1
    }
    for package in "$@"; do
        package_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! can_be_root; then
        warn "Neither root nor sudo; not installing: ${missing[*]}"
        warn "To install them: apt-get install ${missing[*]}"
        return 1
    fi
    say "Installing from the distribution: ${missing[*]}"
    log=$(mktemp)
    if [ "$APT_UPDATED" = no ]; then
        # A stale list is better than none: the install below has the last word.
        as_root apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update \
            >"$log" 2>&1 </dev/null || warn "apt-get update failed; going on with the present lists"
        APT_UPDATED=yes
    fi
    case " ${missing[*]} " in *" postgresql "*) keep_postgres_from_starting ;; esac
    if ! as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -q -y \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold \
        install --no-install-recommends "${missing[@]}" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        warn "Could not install: ${missing[*]}"
        return 1
    fi
    rm -f "$log"
}

# --- the virtual environment -----------------------------------------------------------------

# A name on PATH may be a launcher for a version that is not there, so each is tried.
usable_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

can_make_venvs() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

find_python() {
    local name
    for name in "${ENLIST_PYTHON:-}" python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && usable_python "$name" &&
            can_make_venvs "$name"; then
            printf '%s\n' "$name"
            return 0
        fi
    done
    return 1
}

ensure_python() {
    find_python && return 0
    install_packages python3 python3-venv >&2 || true
    find_python && return 0
    # An own python3.X beside the distribution's needs that version's package.
    install_packages "$(python3 -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])' \
        2>/dev/null || echo python3-venv)" >&2 || true
    find_python && return 0
    die "Enlist needs Python 3.11 or newer with its venv module: apt-get install python3 python3-venv"
}

# What the environment must be made from: the lock, and what the project file says of installing
# (all before the settings of the linters). One environment may hold more than asked for, never less.
venv_fingerprint() { # venv_fingerprint LOCK
    (
        cd "$ROOT" || exit
        { cat "requirements/$1.lock" && sed '/^\[tool\.ruff\]/,$d' pyproject.toml; } |
            sha256sum | cut -d ' ' -f 1
    )
}

# ensure_venv base|platform|dev: makes .venv hold at least that lock and the project itself.
ensure_venv() {
    # One at a time: two scripts started together must not install into each other.
    exec 9<"$ROOT"
    if ! flock -w 900 9; then
        die "Another script has been setting up $VENV for 15 minutes; end it and try again"
    fi
    ensure_venv_locked "$1"
    exec 9<&-
}

install_locked() { # install_locked LOCK
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    "$VENV/bin/python" -m pip install --require-hashes -r "$ROOT/requirements/$1.lock" &&
        "$VENV/bin/python" -m pip install --no-deps --no-build-isolation -e "$ROOT"
}

ensure_venv_locked() {
    local name=$1 held='' python log
    if [ -e "$VENV" ] && ! usable_python "$VENV/bin/python"; then
        say "Removing $VENV: its Python is gone or too old"
        rm -rf "$VENV"
    fi
    [ -f "$VENV_STAMP" ] && held=$(<"$VENV_STAMP")
    case $held in
        dev\ *) name=dev ;;
        platform\ *) [ "$name" = base ] && name=platform ;;
    esac
    [ "$held" = "$name $(venv_fingerprint "$name")" ] && return 0
    if [ ! -e "$VENV" ]; then
        python=$(ensure_python)
        say "Making .venv with $("$python" --version 2>&1)"
        "$python" -m venv "$VENV"
    fi
    say "Installing requirements/$name.lock into .venv"
    rm -f "$VENV_STAMP"
    log=$(mktemp)
    if ! install_locked "$name" >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        die "Could not install the locked dependencies; see above"
    fi
    rm -f "$log"
    printf '%s %s\n' "$name" "$(venv_fingerprint "$name")" >"$VENV_STAMP"
}

# --- small things ----------------------------------------------------------------------------

# Seconds since the machine started: a clock that nobody sets.
uptime_seconds() {
    local up rest
    read -r up rest </proc/uptime
    printf '%s\n' "${up%.*}"
}
