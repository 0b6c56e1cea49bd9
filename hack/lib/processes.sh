# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Long-lived processes. Each has its own session, so it outlives the script and gets no Ctrl-C. Its output goes to a log.
# Its pid is stored with its start time, so that a reused pid is recognized.

pids=$state/pids
logs=$state/logs

log_of() { printf '%s/%s.log\n' "$logs" "$1"; }

# The start time of a process in ticks since boot: field 22 of stat. The name in field 2 may contain spaces.
started_at() {
  local stat fields
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != [ZX] ]] && printf '%s\n' "${fields[19]}"
}

# pid_of NAME: the pid of a running component; false if it does not run.
pid_of() {
  local pid start
  { read -r pid start <"$pids/$1"; } 2>/dev/null || return 1
  [[ $(started_at "$pid") == "$start" ]] && printf '%s\n' "$pid"
}

is_running() { pid_of "$1" >/dev/null; }

# start NAME COMMAND...
start() {
  local name=$1
  shift
  mkdir -p "$pids" "$logs"
  # No proxy: these processes only connect to this machine.
  env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY \
    setsid nohup "$@" </dev/null >>"$(log_of "$name")" 2>&1 9>&- &
  printf '%s %s\n' "$!" "$(started_at "$!")" >"$pids/$name"
}

# Maximum seconds until a component is ready, or a killed process is gone. Long, because a slow or busy machine needs ten
# times as long as a fast one. A component that cannot become ready usually exits.
ready_seconds=300

# wait_for NAME COMMAND...: waits until the command succeeds. If the component exits first, or the time is over, prints the
# end of its log.
wait_for() {
  local name=$1
  shift
  if ! wait_until "$ready_seconds" ended_or "$name" "$@"; then
    fail_with_log "$name" "$name is not ready after $ready_seconds s ($*)"
  elif ! is_running "$name"; then
    fail_with_log "$name" "$name ended at its start"
  fi
}

ended_or() { ! is_running "$1" || "${@:2}"; }

fail_with_log() {
  warn "$2; the end of $(log_of "$1"):"
  tail -n 25 "$(log_of "$1")" >&2 || true
  exit 1
}

# end_pids SECONDS PID...: sends SIGTERM, after SECONDS also SIGKILL; returns when all processes are gone.
end_pids() {
  local patience=$1
  shift
  (($#)) || return 0
  kill -TERM "$@" 2>/dev/null || true
  wait_until "$patience" all_gone "$@" && return
  kill -KILL "$@" 2>/dev/null || true
  wait_until "$ready_seconds" all_gone "$@" || warn "these processes do not end: $*"
}

all_gone() {
  local pid
  for pid in "$@"; do
    if started_at "$pid" >/dev/null; then return 1; fi
  done
}

# stop SECONDS NAME...: stops all of them at the same time.
stop() {
  local patience=$1 name pid ending=()
  shift
  for name in "$@"; do
    if pid=$(pid_of "$name"); then ending+=("$pid"); fi
  done
  end_pids "$patience" "${ending[@]}"
  for name in "$@"; do rm -f "$pids/$name"; done
}
