#!/bin/sh
# Installs Enlist on this machine, updates it, or takes it away again.
#
#   curl -fsS https://HOST/install.sh | sudo sh -s -- --role worker --from https://HOST
#   sudo sh install.sh --role worker --from DIR --join-token-file FILE
#   sudo sh install.sh --role worker --uninstall
#
# Plain POSIX sh, and one long file: it comes through a pipe as one download, before anything else of
# Enlist's is here or can be believed, so it has no other file to take a function from. Everything is
# a function and the last line calls main, so that a download that is cut off anywhere does nothing. Nothing from a release runs before the release's signature and
# hashes have been checked. docs/install.md says what is put where.
#
# What differs between package managers stands in one place: "packages of the distribution".

# The release key, the base64 of its 32 bytes; filled in when a release is made. Without it only
# what --release-key names is believed.
RELEASE_KEY=''

SUPPORTED_PYTHONS='3.11 3.12 3.13'
MOST_ARCHIVE_BYTES=300000000
MOST_TEXT_BYTES=4096
# "MCowBQYDK2VwAyEA" is how the base64 of every Ed25519 key in SubjectPublicKeyInfo begins.
KEY_HEAD='MCowBQYDK2VwAyEA'
# What root runs, and whose folders it trusts, is said here and never by the caller's surroundings.
ROOTS_PATH='/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
ROOTS_UID='0'
ROOTS_TOP='/'

usage() {
    cat <<'USAGE'
Usage: install.sh --role worker|platform [OPTION]... [-- JOIN_OPTION...]

  --from DIR|FILE|URL    where the release is: a released folder, one archive, or an https address
                         of either or of a Platform's bundle port (default: beside this script)
  --version V            this version, not the latest there
  --sha256 HEX           the archive must have this hash
  --pin sha256:HEX       the key of the https server, instead of public roots
  --release-key FILE     the key that signs releases, instead of the one in this script
  --join-token-file FILE the join token of a worker; - reads it from standard input. Without this
                         option it is asked for on the terminal
  --prefix DIR           where releases go (default /opt/enlist). As a plain user: an installation
                         without root, accounts and units
  --data-dir DIR         where the role keeps its data (default /var/lib/enlist/ROLE)
  --containers           installs Podman from the distribution, where neither Podman nor Docker is
  --open-firewall        opens the role's ports in the firewall that runs here
  --uninstall            takes the role away again, with its data
  --remove-machines      with it: ends and removes the local machines of this host as well
  --dry-run, --check     says what would be done, and does nothing
  --yes                  asks nothing
  --debug                shows where a fault of Enlist's comes from

What follows -- goes to "enlist worker join", as --address IP or --label K=V.
The same command again goes on where it was interrupted, or updates.
USAGE
}

# --- saying what is done ---------------------------------------------------------------------

uptime_tenths() { # of seconds; the wall clock may be wrong and may jump
    if [ -r /proc/uptime ]; then
        read -r up _ </proc/uptime
        whole=${up%.*}
        part=${up#*.}
        printf '%s\n' "$whole${part%"${part#?}"}"
    else
        printf '%s0\n' "$(date +%s)"
    fi
}

tenths() { # tenths N: as seconds with one place
    printf '%s.%s' "$(($1 / 10))" "$(($1 % 10))"
}

say() {
    printf 'enlist: [%5s s] %s\n' "$(tenths $(($(uptime_tenths) - BEGAN)))" "$*" >&2
}

printable() { # what another program or a server said, for a terminal: nothing in it is a command
    tr -c '\040-\176\n' '?'
}

die() { # die CODE WORD...
    code=$1
    shift
    printf 'enlist: %s\n' "$*" >&2
    exit "$code"
}

phase() { # phase NAME WORD...: the phase before it ends
    end_phase
    PHASE=$1
    PHASE_BEGAN=$(uptime_tenths)
    shift
    say "$*"
}

end_phase() {
    if [ -n "$PHASE" ]; then
        TIMES="$TIMES${TIMES:+,}$PHASE $(tenths $(($(uptime_tenths) - PHASE_BEGAN)))"
        PHASE=''
    fi
}

have() {
    command -v "$1" >/dev/null 2>&1
}

has_terminal() {
    (exec 3<>/dev/tty) 2>/dev/null
}

# --- options ---------------------------------------------------------------------------------

need_value() { # need_value OPTION COUNT VALUE: an empty one is a variable that was not set
    [ "$2" -gt 1 ] && [ -n "$3" ] || die 2 "$1 needs a value. See --help."
}

refuse_secret() {
    case $1 in
        enj_* | ent_* | *[!a-zA-Z0-9_/.]enj_* | *[!a-zA-Z0-9_/.]ent_*)
            die 2 "A token was given as an argument, where every process can read it." \
                "Withdraw it, and use --join-token-file FILE, or - for standard input."
            ;;
    esac
}

absolute() { # absolute DIR: without looking at what is there
    case $1 in
        /*) printf '%s\n' "$1" ;;
        *) printf '%s/%s\n' "$(pwd)" "$1" ;;
    esac
}

# parse_options WORD...: also sets JOIN_COUNT, how many words at the end are for the join.
parse_options() {
    for word in "$@"; do refuse_secret "$word"; done
    while [ $# -gt 0 ]; do
        case $1 in
            --*=*)
                option=$1
                shift
                set -- "${option%%=*}" "${option#*=}" "$@"
                continue
                ;;
            --role | --from | --version | --sha256 | --pin | --release-key | --join-token-file | --prefix | --data-dir)
                need_value "$1" $# "${2-}"
                case $1 in
                    --role) ROLE=$2 ;;
                    --from) FROM=$2 ;;
                    --version) VERSION=$2 ;;
                    --sha256) SHA256=$2 ;;
                    --pin) PIN=$2 ;;
                    --release-key) RELEASE_KEY_FILE=$2 ;;
                    --join-token-file) TOKEN_FILE=$2 ;;
                    --prefix) PREFIX=$2 ;;
                    --data-dir) DATA_DIR=$2 ;;
                esac
                shift 2
                ;;
            --containers) CONTAINERS=yes && shift ;;
            --open-firewall) OPEN_FIREWALL=yes && shift ;;
            --uninstall) UNINSTALL=yes && shift ;;
            --remove-machines) REMOVE_MACHINES=yes && shift ;;
            --dry-run | --check) DRY_RUN=yes && shift ;;
            --yes | -y) YES=yes && shift ;;
            --debug) DEBUG=yes && shift ;;
            --help | -h)
                usage
                exit 0
                ;;
            --)
                shift
                break
                ;;
            *) die 2 "install.sh does not know '$1'. See --help." ;;
        esac
    done
    JOIN_COUNT=$#
}

check_options() {
    case $ROLE in
        worker | platform) ;;
        '') die 2 "Say what this machine is to be: --role worker or --role platform. See --help." ;;
        *) die 2 "--role is worker or platform, not '$ROLE'." ;;
    esac
    [ "$REMOVE_MACHINES" = no ] || [ "$UNINSTALL" = yes ] ||
        die 2 "--remove-machines goes with --uninstall."
    choose_path
    case $(uname -m) in
        x86_64 | amd64) ARCH=x86_64 ;;
        aarch64 | arm64) ARCH=aarch64 ;;
        *) die 2 "Enlist has no releases for $(uname -m), only for x86_64 and aarch64." ;;
    esac
    [ "$(uname -s)" = Linux ] || die 2 "Enlist runs on Linux, not on $(uname -s)."
    if [ -n "$SHA256" ]; then
        SHA256=$(printf '%s' "${SHA256#sha256:}" | tr 'A-F' 'a-f')
        is_hash "$SHA256" || die 2 "--sha256 takes 64 hex digits."
    fi
    case $VERSION in
        *[!0-9.]*) die 2 "--version has the form 1.2.3, not '$VERSION'." ;;
    esac
    if [ -n "$RELEASE_KEY_FILE" ] && [ ! -r "$RELEASE_KEY_FILE" ]; then
        die 2 "The release key $RELEASE_KEY_FILE cannot be read."
    fi
    case $PIN in
        '' | sha256:?* | sha256//?*) ;;
        *) die 2 "--pin has the form sha256:HEX." ;;
    esac
    check_address
    check_token_file
    if [ -n "$PREFIX" ]; then PREFIX=$(absolute "$PREFIX"); fi
    if [ -n "$DATA_DIR" ]; then DATA_DIR=$(absolute "$DATA_DIR"); fi
    case "$PREFIX$DATA_DIR" in
        *[[:space:]\'\"%\\]*) die 2 "--prefix and --data-dir take no blanks, quotes, % or backslashes." ;;
    esac
}

choose_path() { # before the first program is run, and not before it is known that something is asked
    if [ "$(PATH=$ROOTS_PATH id -u)" -eq 0 ]; then
        PATH=$ROOTS_PATH
    else
        PATH=${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin
    fi
    export PATH
}

check_address() { # of --from; what is wrong with it is said without saying it, since it may be secret
    case $FROM in
        https://*) ;;
        *) return 0 ;;
    esac
    case $FROM in
        *[![:graph:]]* | *[\"\'\\]*) die 2 "--from takes an address without blanks, quotes and backslashes." ;;
    esac
    authority=${FROM#https://}
    authority=${authority%%[/?#]*}
    case $authority in
        *@*) die 2 "--from takes no address with a user or a password in it: it would be read in logs." ;;
        '') die 2 "--from has the form https://HOST/PATH." ;;
    esac
}

check_token_file() {
    [ -n "$TOKEN_FILE" ] || return 0
    [ "$ROLE" = worker ] || die 2 "--join-token-file is for --role worker."
    if [ "$TOKEN_FILE" = - ]; then
        [ -f "$0" ] || die 2 "Standard input carries this script, so it cannot carry the token:" \
            "use --join-token-file FILE, or leave it out and be asked on the terminal."
    elif [ ! -r "$TOKEN_FILE" ]; then
        die 2 "The join token file $TOKEN_FILE cannot be read."
    fi
}

# Root, or a place of one's own; decided before anything is fetched.
check_rights() { # check_rights WORD...: all that was given, for sudo
    ROOTLESS=no
    if [ "$(id -u)" -eq 0 ]; then
        PREFIX=${PREFIX:-/opt/enlist}
        only_roots "$PREFIX/$ROLE/releases"
        only_roots "$PREFIX/$ROLE/uninstaller"
        return 0
    fi
    if [ -n "$PREFIX" ]; then
        ROOTLESS=yes
        [ "$ROLE" = worker ] || [ "$UNINSTALL" = yes ] || say "As a plain user, no port below 1024 and no units."
        return 0
    fi
    if [ "$DRY_RUN" = yes ]; then
        PREFIX=/opt/enlist
        return 0
    fi
    if [ -f "$0" ] && have sudo; then
        if sudo -n true 2>/dev/null || has_terminal; then
            say "Root is needed for accounts, units and /opt/enlist: going on with sudo"
            exec sudo -- sh "$0" "$@"
        fi
    fi
    die 2 "Root is needed to make the accounts, the units and /opt/enlist, and this is $(id -un)." \
        "Run it as root (curl … | sudo sh -s -- …), or with --prefix DIR to install without root."
}

# Whoever else owns or may write a folder on the way to a place can put something else in it, and what
# is there root runs or believes. A sticky folder does not help. Links are followed one by one.
only_roots() { # only_roots PATH [LINKS]
    place=$1
    links=${2:-0}
    [ "$links" -lt 20 ] || die 6 "$1 leads back to itself."
    while :; do
        if [ -L "$place" ]; then
            target=$(readlink -- "$place")
            case $target in
                /*) ;;
                *) target=$(dirname -- "$place")/$target ;;
            esac
            (only_roots "$target" $((links + 1))) || exit $?
        elif [ -e "$place" ]; then
            owned=$(stat -c '%u %a' -- "$place") || die 6 "$place cannot be looked at."
            [ "${owned% *}" = "$ROOTS_UID" ] && [ $((0${owned#* } & 022)) -eq 0 ] ||
                die 6 "$place belongs to uid ${owned% *} with mode ${owned#* }: others than root can put" \
                    "something else in the place of what is below it. Choose another place with --prefix," \
                    "or look at what is there, then: chown root $place; chmod go-w $place"
        fi
        case $place in
            "$ROOTS_TOP" | / | .) return 0 ;;
        esac
        place=$(dirname -- "$place")
    done
}

# --- packages of the distribution ------------------------------------------------------------
# Everything that differs between families is here: the name of the package that brings a Python,
# how packages are listed, installed and removed, and how a lock is told from another failure.

read_os() {
    os_file=${ENLIST_OS_RELEASE:-/etc/os-release}
    OS_ID=$(os_field ID)
    OS_LIKE=$(os_field ID_LIKE)
    OS_VERSION=$(os_field VERSION_ID)
    OS_NAME=$(os_field PRETTY_NAME)
    PM=none
    if have apt-get; then
        PM=apt
    elif have dnf; then
        PM=dnf
    fi
}

os_field() {
    [ -r "$os_file" ] || return 0
    sed -n "s/^$1=//p" "$os_file" | head -n 1 | tr -d "\"'"
}

is_rhel() {
    case " $OS_ID $OS_LIKE " in
        *" fedora "*) [ "$OS_ID" != fedora ] ;;
        *" rhel "* | *" centos "*) true ;;
        *) false ;;
    esac
}

# The package with the first supported Python, and where it comes from.
python_package() {
    PYTHON_PACKAGE=python3
    PYTHON_ORIGIN="the distribution's python3"
    case $PM:$OS_ID:$OS_VERSION in
        apt:ubuntu:22.04)
            PYTHON_PACKAGE=python3.11
            PYTHON_ORIGIN="python3.11 from universe (Ubuntu 22.04's own python3 is 3.10)"
            ;;
        apt:debian:11 | apt:ubuntu:20.04)
            PYTHON_PACKAGE=''
            PYTHON_ORIGIN="nowhere: $OS_NAME has no Python 3.11; upgrade it first"
            ;;
        dnf:fedora:*)
            if [ "${OS_VERSION%%.*}" -ge 43 ] 2>/dev/null; then
                PYTHON_PACKAGE=python3.13
                PYTHON_ORIGIN="python3.13 (this Fedora's python3 is newer than Enlist knows)"
            fi
            ;;
        dnf:*)
            if is_rhel; then
                case ${OS_VERSION%%.*} in
                    8 | 9)
                        PYTHON_PACKAGE=python3.11
                        PYTHON_ORIGIN="python3.11 from AppStream (the system's python3 is older)"
                        ;;
                esac
            fi
            ;;
        none:*)
            PYTHON_PACKAGE=''
            PYTHON_ORIGIN="wherever this system has it: no apt-get and no dnf is here"
            ;;
    esac
}

list_packages() {
    case $PM in
        apt) dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' ;;
        dnf) rpm -qa --qf '%{NAME}\n' 2>/dev/null ;;
    esac | sort -u
}

install_words() { # the command, for people and for a dry run
    case $PM in
        apt) printf 'apt-get install --no-install-recommends %s\n' "$*" ;;
        dnf) printf 'dnf install --setopt=install_weak_deps=False %s\n' "$*" ;;
        *) printf '%s\n' "install $* by hand" ;;
    esac
}

pm_install() { # pm_install PACKAGE...
    case $PM in
        apt)
            pm apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold \
                install "$WEAK" "$@" && return 0
            # The lists may be missing or old.
            pm apt-get -q -y -o Acquire::Retries=3 update ||
                say "apt-get update failed; trying with the lists that are here"
            pm apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold \
                install "$WEAK" "$@"
            ;;
        dnf) pm dnf -q -y --setopt=exit_on_lock=True "$WEAK" install "$@" ;;
        *) return 1 ;;
    esac
}

pm_remove() { # pm_remove PACKAGE...: only if nothing else goes with them
    case $PM in
        apt)
            others=$(apt-get -s purge "$@" 2>/dev/null | sed -n 's/^\(Remv\|Purg\) \([^ ]*\).*/\2/p' | sort -u |
                while read -r one; do case " $* " in *" $one "*) ;; *) echo "$one" ;; esac done)
            [ -z "$others" ] || return 2
            pm apt-get -q -y purge "$@"
            ;;
        dnf)
            rpm -e --test "$@" >/dev/null 2>&1 || return 2
            pm rpm -e "$@"
            ;;
        *) return 1 ;;
    esac
}

says_locked() {
    grep -q -i -E 'could not get lock|unable to (acquire|lock)|dpkg frontend lock|is another process using it|already locked by|(obtain|acquire) .*transaction lock|lock.* held by' "$WORK/log"
}

# Runs a package manager's command; waits, bounded and said, while somebody else holds its lock.
pm() {
    waited=0
    mended=no
    while :; do
        list_before
        # dnf 5 waits for a lock by itself, without an end.
        DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
            timeout -s INT "$((LOCK_SECONDS + 1800))" "$@" >"$WORK/log" 2>&1 </dev/null && {
            list_after
            return 0
        }
        if grep -q "dpkg --configure -a" "$WORK/log" && [ "$mended" = no ]; then
            say "An earlier installation of packages was cut off: dpkg --configure -a"
            mended=yes
            DEBIAN_FRONTEND=noninteractive dpkg --configure -a >"$WORK/log" 2>&1 </dev/null || return 1
            continue
        fi
        says_locked || return 1
        if [ "$waited" -ge "$LOCK_SECONDS" ]; then
            die 75 "Another program has held the package manager's lock for $waited s:" \
                "$(head -n 1 "$WORK/log" | printable) Run the same command again later."
        fi
        if [ $((waited % 30)) -eq 0 ]; then
            say "Another program holds the package manager's lock; waiting ($waited of $LOCK_SECONDS s)"
        fi
        sleep 3
        waited=$((waited + 3))
    done
}

ensure_packages() { # ensure_packages WHY PACKAGE...
    why=$1
    shift
    if [ "$DRY_RUN" = yes ]; then
        printf 'would run: %s   (%s)\n' "$(install_words "$@")" "$why"
        return 0
    fi
    [ "$(id -u)" -eq 0 ] ||
        die 2 "$why. As root: $(install_words "$@")"
    say "$why: $(install_words "$@")"
    if ! pm_install "$@"; then
        tail -n 5 "$WORK/log" | printable >&2
        if grep -q -i -E 'unable to locate package|no match for argument|unable to find a match' "$WORK/log"; then
            die 6 "This distribution has no package $*. $why."
        fi
        die 75 "The package manager could not install $*; its last words are above. Run the same command again."
    fi
}

# Which packages came with us is told by the lists before and after each try, taken close around it:
# what somebody else installs while a lock is waited for is not ours to remove. What a power cut
# interrupts is not recorded, and so is left at removal.
list_before() {
    mkdir -p "$PREFIX/$ROLE" || die 6 "$PREFIX/$ROLE cannot be made."
    list_packages >"$WORK/packages-before"
}

list_after() {
    list_packages | comm -13 "$WORK/packages-before" - >>"$PREFIX/$ROLE/packages-new"
}

new_packages() {
    [ -e "$PREFIX/$ROLE/packages-new" ] || return 0
    sort -u "$PREFIX/$ROLE/packages-new" | tr '\n' ' '
}

# --- Python ----------------------------------------------------------------------------------

python_version() { # python_version PROGRAM: X.Y if all is there that an installation needs
    "$1" -I -c 'import ctypes, hashlib, json, lzma, sqlite3, ssl, sys, tarfile, zipfile
print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null
}

# Root takes only what stands where the distribution or an administrator puts programs: a Python in
# somebody's home would be out of reach for the accounts that Enlist runs as.
find_python() {
    for name in ${ENLIST_PYTHON:+"$ENLIST_PYTHON"} python3 python3.13 python3.12 python3.11; do
        case $name in
            /*) candidates=$name ;;
            *)
                candidates=''
                for folder in ${ENLIST_PYTHON_FOLDERS:-/usr/bin /usr/local/bin}; do
                    candidates="$candidates $folder/$name"
                done
                ;;
        esac
        for candidate in $candidates; do
            [ -x "$candidate" ] || continue
            version=$(python_version "$candidate") || continue
            case " $SUPPORTED_PYTHONS " in
                *" $version "*)
                    PYTHON=$candidate
                    return 0
                    ;;
            esac
        done
    done
    return 1
}

ensure_python() {
    find_python && return 0
    python_package
    if [ -z "$PYTHON_PACKAGE" ]; then
        die 6 "Enlist needs Python 3.11, 3.12 or 3.13 with its standard library: it comes from $PYTHON_ORIGIN."
    fi
    ensure_packages "Enlist needs Python 3.11 to 3.13: $PYTHON_ORIGIN" "$PYTHON_PACKAGE"
    [ "$DRY_RUN" = no ] || return 1
    find_python ||
        die 6 "$PYTHON_PACKAGE is installed, and still no Python 3.11 to 3.13 is in /usr/bin or" \
            "/usr/local/bin. Install one, and run the same command again."
}

# --- what a release is checked with -----------------------------------------------------------

is_hash() {
    [ "${#1}" -eq 64 ] && case $1 in *[!0-9a-f]*) false ;; esac
}

hash_of() {
    if have sha256sum; then
        sha256sum <"$1" | cut -d ' ' -f 1
    else
        "$PYTHON" -I -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1" </dev/null
    fi
}

# The key as PEM in $WORK/release.pub, from the option or from this script.
take_key() {
    key=$RELEASE_KEY
    if [ -n "$RELEASE_KEY_FILE" ]; then
        key=$(head -c 4096 "$RELEASE_KEY_FILE" | sed '/^-----/d' | tr -d ' \t\r\n')
        key=${key#"$KEY_HEAD"}
    fi
    if [ -z "$key" ]; then
        die 6 "This install.sh holds no release key, so it can believe no release." \
            "Name the key: --release-key FILE"
    fi
    case $key in
        *[!A-Za-z0-9+/=]*) key='' ;;
    esac
    [ "${#key}" -eq 44 ] || die 2 "The release key is not the public half of an Ed25519 key."
    printf -- '-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n' "$KEY_HEAD$key" >"$WORK/release.pub"
}

openssl_verifies() { # openssl_verifies KEY.pem FILE SIGNATURE
    openssl pkeyutl -verify -pubin -inkey "$1" -rawin -in "$2" -sigfile "$3" >/dev/null 2>&1 </dev/null
}

# Whether openssl is here and knows Ed25519: the second test vector of RFC 8032 is right, and with
# another message it is wrong.
openssl_works() {
    have openssl || return 1
    printf -- '-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n' \
        "${KEY_HEAD}PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=" >"$WORK/vector.pub"
    printf 'r' >"$WORK/vector"
    printf 's' >"$WORK/vector.other"
    printf '%s\n' 'kqAJqfDUyrhyDoILX2QlQKKye1QWUD+Ps3YiI+vbadoIWsHkPhWZbkWPNhPQ8R2Mjhsq63MCrusA0pFhKrsMAA==' |
        openssl base64 -d -A >"$WORK/vector.sig" 2>/dev/null || return 1
    openssl_verifies "$WORK/vector.pub" "$WORK/vector" "$WORK/vector.sig" || return 1
    ! openssl_verifies "$WORK/vector.pub" "$WORK/vector.other" "$WORK/vector.sig"
}

# Ed25519 of RFC 8032, verification alone: nothing here is secret, so it need not take equal time.
python_verifies() { # python_verifies KEY.pem FILE SIGNATURE
    "$PYTHON" -I -c '
import base64, hashlib, sys

key = base64.b64decode(open(sys.argv[1]).read().split("-----")[2])[-32:]
message = open(sys.argv[2], "rb").read()
signature = open(sys.argv[3], "rb").read()
p = 2**255 - 19
order = 2**252 + 27742317777372353535851937790883648493
d = -121665 * pow(121666, p - 2, p) % p

def add(one, two):
    a = (one[1] - one[0]) * (two[1] - two[0]) % p
    b = (one[1] + one[0]) * (two[1] + two[0]) % p
    c = 2 * one[3] * two[3] * d % p
    e = 2 * one[2] * two[2] % p
    return (b - a) * (e - c) % p, (e + c) * (b + a) % p, (e - c) * (e + c) % p, (b - a) * (b + a) % p

def times(factor, point):
    total = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            total = add(total, point)
        point = add(point, point)
        factor >>= 1
    return total

def unpack(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= p:
        sys.exit(1)
    square = (y * y - 1) * pow(d * y * y + 1, p - 2, p) % p
    x = pow(square, (p + 3) // 8, p)
    if (x * x - square) % p:
        x = x * pow(2, (p - 1) // 4, p) % p
    if (x * x - square) % p or (x == 0 and sign):
        sys.exit(1)
    if x & 1 != sign:
        x = p - x
    return x, y, 1, x * y % p

def pack(point):
    inverse = pow(point[2], p - 2, p)
    x, y = point[0] * inverse % p, point[1] * inverse % p
    return (y | (x & 1) << 255).to_bytes(32, "little")

if len(key) != 32 or len(signature) != 64:
    sys.exit(1)
s = int.from_bytes(signature[32:], "little")
if s >= order:
    sys.exit(1)
public = unpack(key)
base_y = 4 * pow(5, p - 2, p) % p
base = unpack(base_y.to_bytes(32, "little"))
digest = hashlib.sha512(signature[:32] + key + message).digest()
k = int.from_bytes(digest, "little") % order
minus = (p - public[0], public[1], 1, (p - public[3]) % p)
sys.exit(pack(add(times(s, base), times(k, minus))) != signature[:32])
' "$1" "$2" "$3" 2>/dev/null </dev/null
}

verify_signature() { # verify_signature FILE SIGNATURE
    if [ "${ENLIST_VERIFY_WITH:-openssl}" = openssl ] && openssl_works; then
        openssl_verifies "$WORK/release.pub" "$1" "$2"
    elif [ -n "$PYTHON" ]; then
        python_verifies "$WORK/release.pub" "$1" "$2"
    else
        die 6 "Neither openssl nor Python can check the release's signature here, so it is refused." \
            "Install one of them, and run the same command again."
    fi
}

# Takes the archive apart, believing nothing of it but what the signature covers.
check_archive() {
    archive=$WORK/archive.tar
    if [ -n "$WANTED_HASH" ] && [ "$(hash_of "$archive")" != "$WANTED_HASH" ]; then
        die 3 "The archive is not the one that was asked for: its SHA-256 is $(hash_of "$archive"), not $WANTED_HASH."
    fi
    members=$(tar -tf "$archive" 2>/dev/null | head -n 6 | tr '\n' ' ')
    [ "$members" = 'manifest manifest.sig release.json install.sh payload.tar.xz ' ] ||
        die 3 "$ARCHIVE_NAME is no archive of Enlist's."
    member manifest "$MOST_TEXT_BYTES"
    member manifest.sig 64
    [ "$(wc -c <"$WORK/manifest.sig")" -eq 64 ] || die 3 "The archive's signature is no signature."
    verify_signature "$WORK/manifest" "$WORK/manifest.sig" ||
        die 3 "$ARCHIVE_NAME is not signed by the release key that is trusted here: refused."
    member release.json 16384
    member install.sh 1048576
    member payload.tar.xz "$MOST_ARCHIVE_BYTES"
    for name in release.json install.sh payload.tar.xz; do
        wanted=$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\$/\1/p" "$WORK/manifest")
        is_hash "$wanted" && [ "$(hash_of "$WORK/release/$name")" = "$wanted" ] ||
            die 3 "$name in $ARCHIVE_NAME is not what its signed manifest says: refused."
    done
    rm -f "$archive"
}

no_room() {
    die 6 "There is no room in $WORK for the release. Make some, or name another folder: TMPDIR=DIR"
}

member() { # member NAME MOST_BYTES
    case $1 in
        manifest*) target=$WORK/$1 ;;
        *) target=$WORK/release/$1 ;;
    esac
    tar -xOf "$archive" "$1" 2>/dev/null | head -c "$(($2 + 1))" >"$target" || no_room
    [ "$(wc -c <"$target")" -le "$2" ] || die 3 "$1 in $ARCHIVE_NAME is larger than Enlist makes it: refused."
}

# --- fetching ---------------------------------------------------------------------------------
# Proxies are those of the environment (https_proxy, no_proxy). Nobody's curlrc is read: it could turn
# the check of certificates off. Addresses stand in no argument, where every process could read them.

# fetch URL FILE MOST_BYTES: 0 fetched, 1 not there; whatever else goes wrong ends the script.
fetch() {
    waited=0
    pause=1
    while :; do
        fetch_once "$1" "$2" "$3"
        case $FETCHED in
            200)
                [ "$(wc -c <"$2")" -le "$3" ] || die 3 "$1 is larger than Enlist's releases: refused."
                return 0
                ;;
            404) return 1 ;;
            pin) die 6 "$1 answers with another key than the pin says. Compare --pin with what the Platform shows: enlist platform show" ;;
            certificate) die 6 "The certificate of $1 cannot be believed ($REASON). Is this machine's clock right ($(date -u +%Y-%m-%d))? Or name the server's key: --pin sha256:HEX" ;;
            size) die 3 "$1 is larger than Enlist's releases: refused." ;;
            3??) die 2 "$1 redirects, which is not followed. Name the address it leads to." ;;
            4?? | local) [ "$FETCHED" = 429 ] || die 6 "$1 cannot be fetched: ${REASON:-it answers $FETCHED}." ;;
        esac
        if [ "$waited" -ge "$NETWORK_SECONDS" ]; then
            die 75 "$1 cannot be reached: ${REASON:-it answers $FETCHED}. Run the same command again later."
        fi
        [ "$waited" -gt 0 ] || say "$1 cannot be reached yet (${REASON:-it answers $FETCHED}); trying for $NETWORK_SECONDS s"
        sleep "$pause"
        waited=$((waited + pause))
        pause=$((pause < 16 ? pause * 2 : 16))
    done
}

fetch_once() { # sets FETCHED to the HTTP status or a word, and REASON
    REASON=''
    if [ -n "$PIN" ] || have curl; then
        fetch_with_curl "$@"
    else
        fetch_with_python "$@"
    fi
}

fetch_with_curl() {
    # The one place where the certificate's issuer is not looked at: the pin decides instead, and
    # curl compares it with the key of the handshake. Nowhere else does --insecure stand.
    if [ -n "$PIN" ]; then
        set -- "$@" --insecure --pinnedpubkey "$PIN"
    fi
    url=$1
    file=$2
    most=$3
    shift 3
    # --max-filesize holds only where the server says the length, the limit on files always does.
    FETCHED=$(
        ulimit -f $((most / 512 + 1))
        printf 'url = "%s"\n' "$url" |
            curl -q --config - --globoff --silent --show-error --proto '=https' --tlsv1.2 --max-redirs 0 \
                --connect-timeout 15 --max-time "$FETCH_SECONDS" --speed-limit 1000 --speed-time 60 \
                --max-filesize "$most" --write-out '%{http_code}' --output "$file" "$@" 2>"$WORK/curl"
    )
    status=$?
    [ "$status" -eq 0 ] && return 0
    REASON=$(tail -n 1 "$WORK/curl" | printable)
    case $status in
        90) FETCHED=pin ;;
        60 | 51 | 77 | 83 | 91) FETCHED=certificate ;;
        63 | 153) FETCHED=size ;; # 153: ended by the limit on files
        2 | 3 | 4 | 23 | 53 | 54 | 59) FETCHED=local ;;
        *) FETCHED=none ;;
    esac
}

fetch_with_python() {
    FETCHED=$(printf '%s' "$1" | "$PYTHON" -I -c '
import signal, ssl, sys, urllib.error, urllib.request

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None

def too_long(*args):
    raise TimeoutError("it took too long as a whole")

path, most = sys.argv[1], int(sys.argv[2])
url = sys.stdin.read()
signal.signal(signal.SIGALRM, too_long)
signal.alarm(int(sys.argv[3]))  # the timeout below is for each read alone
context = ssl.create_default_context()
opener = urllib.request.build_opener(Stay, urllib.request.HTTPSHandler(context=context))
try:
    with opener.open(url, timeout=30) as answer, open(path, "wb") as file:
        while data := answer.read(1 << 20):
            most -= len(data)
            if most < 0:
                print("size")
                sys.exit()
            file.write(data)
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
except (OSError, urllib.error.URLError) as error:
    why = getattr(error, "reason", error)
    print(why, file=sys.stderr)
    print("certificate" if isinstance(why, ssl.SSLCertVerificationError) else "none")
' "$2" "$3" "$FETCH_SECONDS" 2>"$WORK/curl")
    REASON=$(tail -n 1 "$WORK/curl" | printable)
}

pin_for_curl() { # curl takes the hash in base64
    [ -n "$PIN" ] || return 0
    case $PIN in
        sha256//*) return 0 ;;
    esac
    hex=$(printf '%s' "${PIN#sha256:}" | tr -d ':' | tr 'A-F' 'a-f')
    is_hash "$hex" || die 2 "--pin has the form sha256:HEX, 64 hex digits."
    PIN="sha256//$("$PYTHON" -I -c 'import base64, sys
print(base64.b64encode(bytes.fromhex(sys.argv[1])).decode())' "$hex" </dev/null)"
}

# Puts the archive at $WORK/archive.tar, in a folder that nobody else can write.
get_archive() {
    WANTED_HASH=$SHA256
    if [ -z "$FROM" ]; then
        folder=$(dirname -- "$0")
        [ -f "$0" ] && [ -e "$folder/$ROLE-$ARCH" ] ||
            die 2 "Say where the release is: --from DIR, FILE or https address."
        FROM=$folder
    fi
    case $FROM in
        https://*.tar)
            ARCHIVE_NAME=${FROM##*/}
            fetch "$FROM" "$WORK/archive.tar" "$MOST_ARCHIVE_BYTES" || die 5 "$FROM is not there."
            ;;
        https://*) get_from_address "${FROM%/}" ;;
        *://*) die 2 "--from takes an https address, a folder or a file, not $FROM." ;;
        *)
            if [ -d "$FROM" ]; then
                BESIDE=$(cd -- "$FROM" && pwd)
                get_from_folder "$FROM"
            elif [ -f "$FROM" ]; then
                ARCHIVE_NAME=${FROM##*/}
                copy_archive "$FROM"
            else
                die 2 "$FROM is no folder, no file and no https address."
            fi
            ;;
    esac
}

copy_archive() {
    [ -r "$1" ] || die 6 "$1 cannot be read."
    head -c "$((MOST_ARCHIVE_BYTES + 1))" "$1" >"$WORK/archive.tar" || no_room
}

# The line of a released folder that names its latest archive, or the one of --version.
choose_archive() { # choose_archive LINE
    line_hash=${1%%  *}
    ARCHIVE_NAME=${1#*  }
    is_hash "$line_hash" || die 3 "$FROM does not name its archive as Enlist does: refused."
    named=${ARCHIVE_NAME#enlist-"$ROLE"-}
    named=${named%-"$ARCH".tar}
    case $named in
        '' | *[!0-9.]*) die 3 "$FROM names something that is no archive for $ROLE on $ARCH: refused." ;;
    esac
    [ "$ARCHIVE_NAME" = "enlist-$ROLE-$named-$ARCH.tar" ] ||
        die 3 "$FROM names something that is no archive for $ROLE on $ARCH: refused."
    if [ -n "$VERSION" ] && [ "$ARCHIVE_NAME" != "enlist-$ROLE-$VERSION-$ARCH.tar" ]; then
        ARCHIVE_NAME=enlist-$ROLE-$VERSION-$ARCH.tar
        line_hash=''
    fi
    WANTED_HASH=${SHA256:-$line_hash}
}

get_from_folder() {
    if [ -e "$1/$ROLE-$ARCH" ]; then
        choose_archive "$(head -c 512 "$1/$ROLE-$ARCH" | head -n 1)"
    elif [ -n "$VERSION" ]; then
        ARCHIVE_NAME=enlist-$ROLE-$VERSION-$ARCH.tar
    else
        die 5 "$1 holds no release for $ROLE on $ARCH: the file $ROLE-$ARCH is missing."
    fi
    [ -f "$1/$ARCHIVE_NAME" ] || die 5 "$1/$ARCHIVE_NAME is not there."
    copy_archive "$1/$ARCHIVE_NAME"
}

get_from_address() {
    fetch "$1/$ROLE-$ARCH" "$WORK/latest" 512 ||
        die 5 "$1 offers no release for $ROLE on $ARCH."
    choose_archive "$(head -n 1 "$WORK/latest")"
    # A Platform serves archives by their hash, a mirror of a released folder by their name.
    if [ -n "$WANTED_HASH" ] &&
        fetch "$1/bundles/sha256/$WANTED_HASH" "$WORK/archive.tar" "$MOST_ARCHIVE_BYTES"; then
        return 0
    fi
    fetch "$1/$ARCHIVE_NAME" "$WORK/archive.tar" "$MOST_ARCHIVE_BYTES" ||
        die 5 "$1 does not offer $ARCHIVE_NAME."
}

# --- the work ---------------------------------------------------------------------------------

make_work() {
    # Root unpacks and runs here what has been checked: in a folder of somebody else's, he could put
    # another one in its place.
    if [ -n "${TMPDIR:-}" ] && [ "$ROOTLESS" = no ] && ! (only_roots "$TMPDIR") 2>/dev/null; then
        say "TMPDIR is not root's alone, and not used"
        TMPDIR=''
    fi
    for folder in ${TMPDIR:+"$TMPDIR"} /tmp /var/tmp /run /dev/shm; do
        WORK=$(mktemp -d "$folder/enlist-install.XXXXXXXX" 2>/dev/null) && break
        WORK=''
    done
    [ -n "$WORK" ] || die 6 "There is no room for temporary files in /tmp, /var/tmp or /run."
    chmod 0700 "$WORK"
    mkdir "$WORK/release" "$WORK/code"
}

clean_up() {
    if [ -n "$WORK" ]; then rm -rf "$WORK"; fi
    WORK=''
}

# The installer's own code, from the payload that has been checked.
unpack_code() {
    "$PYTHON" -I -c '
import os, sys, tarfile

source, target = sys.argv[1:]
wanted = ("code/installer/", "code/runtime_kit/", "code/wire_protocol/")
with tarfile.open(source, "r:xz") as tar:
    for member in tar:
        if member.isreg() and member.name.startswith(wanted) and ".." not in member.name:
            path = os.path.join(target, member.name[5:])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(tar.extractfile(member).read())
        elif member.name.startswith(("systemd/", "wheels/")):
            break
' "$WORK/release/payload.tar.xz" "$WORK/code" </dev/null || die 3 "The payload of $ARCHIVE_NAME cannot be unpacked."
}

run_python() { # run_python CODE_FOLDER ARGUMENT...; standard input stays: it may carry the token
    code_folder=$1
    shift
    "$PYTHON" -I -B -c 'import sys
sys.path.insert(0, sys.argv.pop(1))
from installer import command
sys.exit(command.main(sys.argv[1:]))' "$code_folder" "$@"
}

flag() { # flag YES OPTION: the option, if it was chosen
    if [ "$1" = yes ]; then printf '%s' "$2"; fi
}

ensure_containers() {
    [ "$CONTAINERS" = yes ] || return 0
    if have podman || have docker; then
        say "Containers: $(command -v podman || command -v docker) is here"
        return 0
    fi
    # What the distribution recommends with it makes its networks work.
    case $PM in
        apt) WEAK=--install-recommends ;;
        dnf) WEAK=--setopt=install_weak_deps=True ;;
    esac
    ensure_packages "Containers: Podman, from the distribution's signed packages" podman
}

install_role() { # install_role JOIN_ARGUMENT...
    phase packages "Packages: ${OS_NAME:-unknown system}, $PM"
    if ! ensure_python; then
        printf 'would go on with that Python\n'
        return 0
    fi
    if [ -n "$PIN" ] && ! have curl; then
        ensure_packages "A server that is known by its pin alone is asked with curl" curl
        [ "$DRY_RUN" = no ] || return 0
    fi
    ensure_containers
    pin_for_curl
    take_key
    phase fetch "Release: from ${FROM:-beside this script}"
    get_archive
    phase verify "Checking $ARCHIVE_NAME"
    check_archive
    unpack_code
    end_phase
    packages=''
    [ "$DRY_RUN" = yes ] || packages=$(new_packages)
    # Each flag is one word or none.
    # shellcheck disable=SC2046
    run_python "$WORK/code" --role "$ROLE" --prefix "$PREFIX" --data-dir "$DATA_DIR" \
        --source "$WORK/release" --beside "$BESIDE" --release-key "$WORK/release.pub" --version "$VERSION" \
        --archive-name="$ARCHIVE_NAME" \
        --packages "$packages" --join-token-file "$TOKEN_FILE" --times "$TIMES" \
        --elapsed "$(tenths $(($(uptime_tenths) - BEGAN)))" \
        $(flag "$ROOTLESS" --rootless) $(flag "$DRY_RUN" --dry-run) $(flag "$YES" --yes) \
        $(flag "$DEBUG" --debug) $(flag "$OPEN_FIREWALL" --open-firewall) \
        $([ -z "$RELEASE_KEY_FILE" ] || printf '%s' --replace-key) --join "$@"
}

# --- removal ----------------------------------------------------------------------------------

list_of() { # list_of NAME: a list in the receipt, one a line; the receipt is ours, one entry a line
    [ -r "$root/receipt.json" ] || return 0
    sed -n "/^  \"$1\": \[\$/,/^  \]/p" "$root/receipt.json" | sed -n 's/^    "\(.*\)",\{0,1\}$/\1/p'
}

uninstall_role() {
    root=$PREFIX/$ROLE
    if [ "$YES" = no ] && [ "$DRY_RUN" = no ] && [ -t 2 ] && has_terminal; then
        printf 'Remove the %s from this machine, with its keys and data? [y/N] ' "$ROLE" >/dev/tty
        read -r answer </dev/tty || answer=n
        case $answer in
            [yY] | [yY][eE][sS]) ;;
            *) die 4 "Nothing was removed." ;;
        esac
    fi
    packages=$({
        list_of packages
        cat "$root/packages-new" 2>/dev/null
    } | sort -u | tr '\n' ' ')
    folders=$(list_of folders)
    if [ -d "$root" ] || [ "$ROOTLESS" = no ]; then
        remove_with_python
    fi
    [ "$DRY_RUN" = no ] || return 0
    remove_packages
    rm -rf "$root/uninstaller" "$root/.making-uninstaller"
    rm -f "$root/packages-new" "$root/receipt.json"
    # Only what is empty goes: the rest is the other role's, or somebody else's.
    printf '%s\n' "$folders" "$root" "$PREFIX" | awk '{ print length($0) "\t" $0 }' | sort -rn | cut -f 2- |
        while read -r folder; do
            [ -z "$folder" ] || rmdir "$folder" 2>/dev/null
        done
    [ ! -e "$root" ] || die 6 "$root is not empty: what is in it is not Enlist's. Look, and remove it by hand."
    say "Removed. What removal leaves stands in docs/install.md"
}

has_traces() {
    [ ! -e "$root/releases" ] || return 0
    [ "$ROOTLESS" = no ] || return 1
    case $ROLE in
        worker) id enlist-worker >/dev/null 2>&1 && return 0 ;;
        *) id enlist-platform >/dev/null 2>&1 && return 0 ;;
    esac
    grep -q -s -F "$root/" /etc/systemd/system/enlist-*
}

remove_with_python() {
    code=''
    for folder in "$root/uninstaller" "$root"/current/lib/python3.*/site-packages "$root"/releases/*/lib/python3.*/site-packages; do
        if [ -f "$folder/installer/command.py" ]; then
            [ "$ROOTLESS" = yes ] || [ "$(id -u)" -ne 0 ] || only_roots "$folder/installer/command.py"
            code=$folder
            break
        fi
    done
    if [ -z "$code" ]; then
        has_traces || return 0 # removed but for its last files, or never here
        [ -n "$FROM" ] || die 6 "The code that removes is gone from $root. Name a release: --from DIR"
        take_release_code
    fi
    if [ -z "$PYTHON" ] && ! find_python; then
        [ -e "$root/releases" ] || return 0
        die 6 "Removal needs Python 3.11 to 3.13, which is no longer here. Install it, and run the same command again."
    fi
    # shellcheck disable=SC2046
    run_python "$code" --role "$ROLE" --prefix "$PREFIX" --data-dir "$DATA_DIR" --uninstall \
        $(flag "$ROOTLESS" --rootless) $(flag "$DRY_RUN" --dry-run) $(flag "$DEBUG" --debug) \
        $(flag "$REMOVE_MACHINES" --remove-machines) </dev/null || exit $?
}

take_release_code() {
    ensure_python
    pin_for_curl
    take_key
    get_archive
    check_archive
    unpack_code
    code=$WORK/code
}

remove_packages() {
    [ -n "$packages" ] || return 0
    # shellcheck disable=SC2086
    pm_remove $packages && say "Packages that came with Enlist: removed" && return 0
    say "Packages that came with Enlist and are left, since others may need them: $packages"
}

main() {
    set -u
    umask 022
    export LC_ALL=C
    BEGAN=$(uptime_tenths)
    ROLE='' FROM='' VERSION='' SHA256='' PIN='' RELEASE_KEY_FILE='' TOKEN_FILE='' PREFIX='' DATA_DIR=''
    CONTAINERS=no OPEN_FIREWALL=no UNINSTALL=no REMOVE_MACHINES=no DRY_RUN=no YES=no DEBUG=no
    BESIDE='' PHASE='' PHASE_BEGAN=0 TIMES='' WORK='' PYTHON='' WEAK=--no-install-recommends
    # How long others' locks and a network that is not there yet are waited for.
    LOCK_SECONDS=${ENLIST_LOCK_SECONDS:-600}
    NETWORK_SECONDS=${ENLIST_NETWORK_SECONDS:-300}
    FETCH_SECONDS=${ENLIST_FETCH_SECONDS:-900}
    parse_options "$@"
    check_options
    check_rights "$@"
    shift $(($# - JOIN_COUNT))
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    read_os
    make_work
    case $PM in dnf) WEAK=--setopt=install_weak_deps=False ;; esac
    if [ "$UNINSTALL" = yes ]; then
        uninstall_role
    else
        install_role "$@"
    fi
}

main "$@"
