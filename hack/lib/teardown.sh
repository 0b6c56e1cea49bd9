# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Taking a node apart, however much of it still stands, and telling what is left of it.
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
    wait_until 5 all_gone "${containers[@]}" || warn "containers that do not end: ${containers[*]}"
  fi
  end_pids 5 "${shims[@]}"
  # The shims' sockets have a fixed place, whatever containerd's configuration says; each bundle names its own.
  local bundle socket
  for bundle in "$runtime"/state/io.containerd.runtime.v2.task/k8s.io/*/; do
    if socket=$(cat "$bundle/address" 2>/dev/null); then rm -f "${socket#unix://}"; fi
  done
  rmdir /run/containerd/s /run/containerd 2>/dev/null || true
}

our_mounts() { awk -v below="$state/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r; }

remove_mounts() {
  local mount
  our_mounts | while read -r mount; do umount --lazy "$mount" 2>/dev/null || true; done
}

# With KubeletConfiguration.cgroupsPerQOS off the containers' control groups are all below this one.
our_cgroups() { find /sys/fs/cgroup -maxdepth 3 -type d -name k8s.io 2>/dev/null; }

# A group that still has a process, ours or another Kubernetes' on the machine, cannot be removed and stays.
remove_cgroups() {
  our_cgroups | while read -r group; do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
}

kubernetes_rules_exist() { { iptables-save && ip6tables-save; } 2>/dev/null | grep -q '^:\(KUBE-\|CNI-\)'; }

# Removes exactly the chains that kube-proxy and the portmap plugin made, and the jumps to them, in one step per table.
remove_rules() {
  local family table
  for family in iptables ip6tables; do
    for table in filter nat mangle; do
      "$family-save" -t "$table" 2>/dev/null | awk -v table="$table" '
        /^:(KUBE|CNI)-/ { chain = substr($1, 2); flush = flush "-F " chain "\n"; remove = remove "-X " chain "\n" }
        /^-A (KUBE|CNI)-/ { next }
        /^-A .* -j (KUBE|CNI)-/ { sub(/^-A/, "-D"); jumps = jumps $0 "\n" }
        END { if (flush) print "*" table "\n" jumps flush remove "COMMIT" }' | "$family-restore" --noflush
    done
  done
}

restore_sysctls() { [[ ! -r $state/sysctls ]] || sysctl -q -p "$state/sysctls" >/dev/null 2>&1 || true; }

# What kubelet and the CNI library keep in places of their own choosing, one path per line.
traces() {
  find /var/log/containers -lname "$pod_logs/*" 2>/dev/null
  # Each network's last answer, in which the network namespace has its path.
  grep -lsr -F "$state/" /var/lib/cni/results
  find /var/lib/kubelet/device-plugins -name 'kubelet*' 2>/dev/null
  return 0
}

remove_traces() {
  traces | xargs -r rm -f
  rmdir /var/log/containers /var/lib/cni/results /var/lib/cni /var/lib/kubelet/device-plugins /var/lib/kubelet \
    2>/dev/null || true
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

# leftovers: one line for each thing that a cluster should not have left.
# Rules of kube-proxy look like any other kube-proxy's, so they are only looked for where a node of ours was.
leftovers() {
  local pid
  for pid in $(our_pids '*'); do echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-80)"; done
  our_mounts | sed 's/^/mount /'
  if bridge_is_ours; then echo "network bridge $bridge"; fi
  if [[ ${1:-} == node ]]; then
    if kubernetes_rules_exist; then echo "iptables rules of kube-proxy"; fi
    our_cgroups | sed 's/^/control group /'
    traces | sed 's/^/file /'
  fi
  if [[ -e $state ]]; then echo "folder $state"; fi
}
