# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Paths, messages, waiting and locks for all scripts in hack/. Source it; the caller sets `set -euo pipefail`.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lib=$checkout/hack/lib

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kruise-probe
state=${KRUISE_PROBE_CLUSTER_DIR:-${TMPDIR:-/tmp}/kruise-probe-cluster}
# Absolute: `down` recognizes its processes by this path in their command lines.
state=$(realpath -m "$state")

# The image of every pod of the tests. Their containers are shells, sleeps and small web servers.
test_image=kruise-probe-test:busybox

say() { printf '%4ds  %s\n' "$SECONDS" "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
  warn "$*"
  exit 1
}

usage_error() {
  warn "$1; '$0 --help' lists what there is"
  exit 2
}

# Prints the comment block at the head of the calling script, which is its help text.
print_help() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# wait_until SECONDS COMMAND...: returns when the command succeeds; false when the time is over.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

# hold_lock NAME: locks NAME for the rest of the script, after waiting for another run that holds it. Processes that
# outlive the script must close descriptor 9 (see processes.sh), or they would keep the lock.
hold_lock() {
  mkdir -p "$cache/locks"
  exec 9>"$cache/locks/${1//\//_}"
  flock --nonblock 9 && return
  say "waiting for another run of hack/${0##*/}"
  flock --wait 1800 9 || die "another run still holds $cache/locks/${1//\//_}"
}
