# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Removes a node, even if it is incomplete, and lists what could not be removed.
# `up` records what existed on the machine before. That is never removed.
# Containers are killed as processes, so neither kubelet nor containerd has to run.

# our_pids PATTERN: processes of this name with a path below our state folder in their arguments. Finds processes without
# a pid file: the shims, which outlive containerd, and all others if the folder was lost.
our_pids() {
  local escaped file name
  # shellcheck disable=SC2001  # bash cannot replace a match with a reference to it
  escaped=$(sed 's/[][\\.*^$]/\\&/g' <<<"$state/")
  grep -lzs -e "^$escaped" /proc/[0-9]*/cmdline | while read -r file; do
    { IFS= read -r -d '' name <"$file"; } 2>/dev/null || continue
    # shellcheck disable=SC2053  # the right side is a pattern
    if [[ ${name##*/} == $1 ]]; then basename "${file%/cmdline}"; fi
  done
}

end_containers() {
  local shims containers
  mapfile -t shims < <(our_pids 'containerd-shim*')
  ((${#shims[@]})) || return 0
  # A shim is the parent of its containers' first processes and adopts their orphans. A first process without a handler
  # ignores every signal except SIGKILL. The other processes of its pid namespace end with it.
  mapfile -t containers < <(pgrep --parent "$(IFS=, && echo "${shims[*]}")")
  if ((${#containers[@]})); then
    kill -KILL "${containers[@]}" 2>/dev/null || true
    wait_until "$ready_seconds" all_gone "${containers[@]}" || warn "containers that do not end: ${containers[*]}"
  fi
  end_pids 5 "${shims[@]}"
  # The shims' sockets are in a fixed folder that no setting changes. Each bundle contains the address of its own.
  local bundle socket
  for bundle in "$runtime"/state/io.containerd.runtime.v2.task/k8s.io/*/; do
    if socket=$(cat "$bundle/address" 2>/dev/null); then rm -f "${socket#unix://}"; fi
  done
}

our_mounts() { awk -v below="$state/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r; }

remove_mounts() {
  local mount
  our_mounts | while read -r mount; do umount --lazy "$mount" 2>/dev/null || true; done
}

# found_before_up: what existed before `up`, as recorded in the state folder: one line for each group, chain, rule and file.
found_file=$state/found
found_before_up() { cat "$found_file" 2>/dev/null || true; }

# Filters its input: only lines that found_before_up does not contain.
only_new() { grep -vxF -f <(found_before_up) || true; }

# remember_found: records what exists. Call it before a node is started.
remember_found() {
  {
    cgroups
    kubernetes_rules
    traces
    find "${shared_folders[@]}" -maxdepth 0 2>/dev/null || true
  } >"$found_file"
}

# Control groups of all containers, as KubeletConfiguration.cgroupsPerQOS is off. Another containerd on the machine uses
# the same parents.
cgroups() {
  { find /sys/fs/cgroup -maxdepth 3 -type d -name k8s.io 2>/dev/null || true; } | while read -r group; do
    find "$group" -depth -type d 2>/dev/null || true
  done
}

# A group with a process cannot be removed. A killed process may need some time to end.
remove_cgroups() { wait_until 30 cgroups_gone || true; }

cgroups_gone() {
  cgroups | only_new | while read -r group; do rmdir "$group" 2>/dev/null || true; done
  [[ -z $(cgroups | only_new) ]]
}

# kubernetes_rules: the chains of kube-proxy and of the portmap plugin, their rules, and the jumps to them. One line each:
# the family, the table, and the line of iptables-save without counters.
kubernetes_rules() {
  local family table
  for family in iptables ip6tables; do
    for table in filter nat mangle; do
      "$family-save" -t "$table" 2>/dev/null | sed -nE \
        -e "s/^:((KUBE|CNI)-[^ ]+).*/$family $table :\1 -/p" \
        -e "s/^-A ((KUBE|CNI)-.*|.* -j (KUBE|CNI)-.*)/$family $table &/p" || true
    done
  done
}

# rules_undone FAMILY TABLE FOUND: reads kubernetes_rules, and writes the input for iptables-restore that restores FOUND,
# which has the same format. New chains and the jumps to them are removed. Chains of FOUND get their rules back.
rules_undone() {
  found=$3 awk -v scope="$1 $2 " -v table="$2" '
    function chain_of(line) { sub(/^:|^-A /, "", line); sub(/ .*/, "", line); return line }
    BEGIN {
      count = split(ENVIRON["found"], lines, "\n")
      for (number = 1; number <= count; number++) {
        if (index(lines[number], scope) != 1) continue
        line = substr(lines[number], length(scope) + 1)
        was[line] = 1
        if (line ~ /^:/) restored = restored line " [0:0]\n"
        else if (line ~ /^-A (KUBE|CNI)-/) refilled = refilled line "\n"
      }
    }
    index($0, scope) != 1 { next }
    {
      line = substr($0, length(scope) + 1)
      if (line ~ /^:/ && !(line in was)) { flush = flush "-F " chain_of(line) "\n"; remove = remove "-X " chain_of(line) "\n" }
      if (line ~ /^-A/ && line !~ /^-A (KUBE|CNI)-/ && !(line in was)) { sub(/^-A/, "-D", line); jumps = jumps line "\n" }
    }
    END {
      body = restored jumps flush remove refilled
      if (body) printf "*%s\n%sCOMMIT\n", table, body
    }'
}

remove_rules() {
  local family table rules found
  rules=$(kubernetes_rules)
  found=$(found_before_up)
  for family in iptables ip6tables; do
    for table in filter nat mangle; do
      rules_undone "$family" "$table" "$found" <<<"$rules" | "$family-restore" --noflush
    done
  done
}

restore_sysctls() { [[ ! -r $state/sysctls ]] || sysctl -q -p "$state/sysctls" >/dev/null 2>&1 || true; }

# Files that kubelet and the CNI library write outside of the state folder, one path per line.
traces() {
  find /var/log/containers -lname "$pod_logs/*" 2>/dev/null || true
  # The last result of each network contains the path of the network namespace.
  grep -lsr -F "$state/" /var/lib/cni/results || true
  find /var/lib/kubelet/device-plugins -name 'kubelet*' 2>/dev/null || true
}

# Folders that other programs use too. They are removed if they are empty and did not exist before.
shared_folders=(/var/log/containers /var/lib/cni/results /var/lib/cni /var/lib/kubelet/device-plugins /var/lib/kubelet
  /run/containerd/s /run/containerd)

remove_traces() {
  traces | only_new | xargs -r rm -f
  printf '%s\n' "${shared_folders[@]}" | only_new | xargs -r rmdir 2>/dev/null || true
}

remove_node() {
  end_containers
  remove_mounts
  remove_cgroups
  if bridge_is_ours; then
    ip link delete "$bridge"
    remove_rules
  fi
  restore_sysctls
  remove_traces
}

# leftovers [node]: one line for each thing that was not removed. Call it before the state folder is removed, which
# contains what existed before `up`. Rules of our kube-proxy cannot be told from those of another one, so they count only
# if there was a node.
leftovers() {
  local pid
  for pid in $(our_pids '*'); do echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-80)"; done
  our_mounts | sed 's/^/mount /'
  if bridge_is_ours; then echo "network bridge $bridge"; fi
  if [[ ${1:-} == node ]]; then
    kubernetes_rules | only_new | sed 's/^/rule of /'
    cgroups | only_new | sed 's/^/control group /'
    traces | only_new | sed 's/^/file /'
  fi
}
