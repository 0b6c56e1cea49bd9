# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# What every script under hack/ shares: where things are kept, how it speaks to a person, how it waits.
# Sourced, never run; expects `set -euo pipefail` of its caller.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lib=$checkout/hack/lib

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kruise-probe
state=${KRUISE_PROBE_CLUSTER_DIR:-${TMPDIR:-/tmp}/kruise-probe-cluster}
# The same name whatever the folder is called from: it ends in command lines that `down` recognises its processes by.
state=$(realpath -m "$state")

# One image for every pod of the tests, whose containers are shells, sleepers and small web servers.
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

# wait_until SECONDS COMMAND...: true as soon as the command succeeds, false when the time is over.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

# Takes a lock for the rest of the script; waits for another run of the same thing. Its file descriptor is closed in
# whatever outlives the script (see processes.sh), or that would hold the lock for ever.
hold_lock() {
  mkdir -p "$cache/locks"
  exec 9>"$cache/locks/${1//\//_}"
  flock --nonblock 9 && return
  say "waiting for another run of hack/${0##*/}"
  flock --wait 1800 9 || die "another run still holds $cache/locks/${1//\//_}"
}
