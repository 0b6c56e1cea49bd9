# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Takes a node apart, however much of it is left, and lists what it could not remove.
# What the machine had before `up` is no leftover and is never removed: `up` lists it in the state folder.
# Containers are ended as what they are, processes: that needs neither kubelet nor containerd to be alive.

# our_pids PATTERN: processes of that name which were given a path below our state folder. For those whose pid file does
# not exist: the shims, which outlive containerd on purpose, and everything else when the folder was lost.
our_pids() {
  local escaped file name
  # shellcheck disable=SC2001  # a character class is beyond bash's own replacement with a reference to the match
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
  # A shim is the parent of its containers' first processes and adopts what lost its own. A first process without a
  # handler ignores every signal but this; the others of its pid namespace end with it.
  mapfile -t containers < <(pgrep --parent "$(IFS=, && echo "${shims[*]}")")
  if ((${#containers[@]})); then
    kill -KILL "${containers[@]}" 2>/dev/null || true
    wait_until "$ready_seconds" all_gone "${containers[@]}" || warn "containers that do not end: ${containers[*]}"
  fi
  end_pids 5 "${shims[@]}"
  # The shims' sockets have a fixed place, whatever containerd's configuration says; each bundle names its own.
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

# found_before_up: what the state folder says that the machine had before `up`; one line for each group, chain, rule and file.
found_file=$state/found
found_before_up() { cat "$found_file" 2>/dev/null || true; }

# Passes on the lines of its input that were not there before `up`.
only_new() { grep -vxF -f <(found_before_up) || true; }

# remember_found: to be called before a node is started.
remember_found() {
  {
    cgroups
    kubernetes_rules
    traces
    find "${shared_folders[@]}" -maxdepth 0 2>/dev/null || true
  } >"$found_file"
}

# With KubeletConfiguration.cgroupsPerQOS off, the control groups of all containers are below these. Another containerd
# on the machine uses the same ones.
cgroups() {
  { find /sys/fs/cgroup -maxdepth 3 -type d -name k8s.io 2>/dev/null || true; } | while read -r group; do
    find "$group" -depth -type d 2>/dev/null || true
  done
}

# A group that still has a process cannot be removed and stays.
remove_cgroups() { cgroups | only_new | while read -r group; do rmdir "$group" 2>/dev/null || true; done; }

# kubernetes_rules: the chains of kube-proxy and of the portmap plugin, their rules, and the jumps to them, one line each:
# the family, the table, then what iptables-save says, without counters.
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

# rules_undone FAMILY TABLE FOUND: reads kubernetes_rules, writes what iptables-restore takes to get back to FOUND, of
# the same form. Chains that were not there go, with the jumps to them; chains that were there get their rules back.
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

# What kubelet and the CNI library keep in places of their own choosing, one path per line.
traces() {
  find /var/log/containers -lname "$pod_logs/*" 2>/dev/null || true
  # Each network's last answer, in which the network namespace has its path.
  grep -lsr -F "$state/" /var/lib/cni/results || true
  find /var/lib/kubelet/device-plugins -name 'kubelet*' 2>/dev/null || true
}

# Folders that other programs use as well: removed when they are empty and were not there before.
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

# leftovers [node]: one line for each thing that a cluster should not have left. Before the state folder is removed, as that
# knows what was there before `up`. Rules of kube-proxy look like any other kube-proxy's, so they count only where a
# node of ours was.
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
