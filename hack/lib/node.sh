# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# One node: containerd, kubelet, kube-proxy and a bridge for the pods. It has its own paths, sockets and ports, so it does
# not affect another containerd on the machine. Needs root.

node_name=${KRUISE_PROBE_CLUSTER_NODE:-kruise-probe-node}
# Names and addresses of our own, because other tools use cni0 and 10.88.0.0/16.
pod_range=10.213.0.0/16
bridge=kruise-probe0
runtime=$state/containerd
cri_socket=$runtime/containerd.sock
pod_logs=$state/pod-logs
pause_image=kruise-probe-test:pause
cni_network=kruise-probe

packages=(runc containernetworking-plugins busybox-static iproute2 iptables conntrack ethtool socat openssl)

install_packages() {
  containerd_is_built || packages+=(containerd)
  if ! command -v dpkg-query >/dev/null; then
    local tool missing=()
    for tool in containerd runc busybox ip iptables conntrack ethtool socat openssl; do
      command -v "$tool" >/dev/null || missing+=("$tool")
    done
    ((${#missing[@]} == 0)) || die "not a Debian machine: please install ${missing[*]} yourself, and the CNI plugins into /usr/lib/cni"
    return 0
  fi
  local package missing=()
  for package in "${packages[@]}"; do
    [[ $(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  apt_install "${missing[@]}" >/dev/null 2>&1 && return
  # On a new machine the package lists are empty or old.
  if ! apt-get update -qq || ! apt_install "${missing[@]}" >/dev/null; then
    die "apt-get install ${missing[*]} failed; see its messages above"
  fi
}
apt_install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; }

# Kernel settings that the node's programs change. `down` restores them.
sysctls=(net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables net.ipv4.conf.all.route_localnet vm.overcommit_memory
  kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

prepare_kernel() {
  # Without it, the bridge does not translate the address of a response that a pod sends to a client of its Service.
  [[ -d /proc/sys/net/bridge ]] || modprobe br_netfilter ||
    die "this kernel has no br_netfilter, so Services would not work between pods; load it, or use up --no-node"
  sysctl "${sysctls[@]}" >"$state/sysctls" 2>/dev/null || true
  sysctl -q -w net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
}

# The alias names the cluster of the bridge, in case the state folder is lost.
bridge_alias="$cni_network $state"
bridge_exists() { [[ -e /sys/class/net/$bridge ]]; }
bridge_is_ours() { [[ $(cat "/sys/class/net/$bridge/ifalias" 2>/dev/null) == "$bridge_alias" ]]; }

# Another kubelet or kube-proxy in this network namespace would revert the changes of ours, and a bridge of the same name
# has other addresses. Leftovers of such a node are no problem. They stay, also after `down`.
check_no_other_node() {
  local pid alias
  if bridge_exists; then
    alias=$(cat "/sys/class/net/$bridge/ifalias")
    die "there is a bridge $bridge already (${alias:-without an alias}); if nothing uses it, ip link delete $bridge; or use up --no-node"
  fi
  # One call for each name: pgrep warns if a pattern is longer than a process name.
  for pid in $(pgrep -x kubelet || true) $(pgrep -x kube-proxy || true); do
    [[ $(readlink "/proc/$pid/ns/net") != "$(readlink /proc/self/ns/net)" ]] ||
      die "another node runs on this machine ($(<"/proc/$pid/comm"), pid $pid); end it, or use up --no-node"
  done
  if [[ -n $(kubernetes_rules) ]]; then say "iptables has rules of another Kubernetes; down restores them"; fi
  if [[ -n $(cgroups) ]]; then say "another containerd has control groups ($(cgroups | wc -l)); they stay"; fi
}

make_bridge() {
  ip link add "$bridge" type bridge
  ip link set "$bridge" alias "$bridge_alias"
  ip address add "$bridge_address/16" dev "$bridge"
  ip link set "$bridge" up
}

make_node_identities() {
  make_certificate kubelet /O=system:nodes/CN=system:node:"$node_name" "DNS:$node_name,IP:$bridge_address"
  make_kubeconfig kubelet-to-api "/O=system:nodes/CN=system:node:$node_name"
  make_kubeconfig kube-proxy /CN=system:kube-proxy
}

# Pods connect to each other, to Services and to the host only, so no traffic leaves the machine.
write_cni_config() {
  mkdir -p "$state/cni/conf"
  cat >"$state/cni/conf/10-bridge.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "$cni_network", "plugins": [
  {"type": "bridge", "bridge": "$bridge", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$state/cni/addresses", "ranges": [[{"subnet": "$pod_range"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
}

# native copies the image for every container and works everywhere. overlayfs does not work on top of overlayfs, for example.
best_snapshotter() {
  local trial=$state/overlay-trial
  mkdir -p "$trial"/{lower,upper,work,merged}
  if mount -t overlay overlay -o "lowerdir=$trial/lower,upperdir=$trial/upper,workdir=$trial/work" "$trial/merged" 2>/dev/null; then
    umount "$trial/merged"
    echo overlayfs
  else
    echo native
  fi
  rm -rf "$trial"
}

write_containerd_config() {
  mkdir -p "$runtime"
  cat >"$runtime/config.toml" <<EOF
version = 2
root = "$runtime/root"
state = "$runtime/state"
[grpc]
  address = "$cri_socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "$runtime/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/$pause_image"
  # In a container or a small virtual machine, lowering oom_score_adj is denied.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni/conf"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$(best_snapshotter)"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "$runtime/runc"
EOF
}

# It finds its shim by PATH.
start_containerd() { start containerd env PATH="$containerd_built:$PATH" containerd --config "$runtime/config.toml" --log-level warn; }

containerd_ctl() { "$(path_of ctr)" --address "$cri_socket" --timeout 120s --connect-timeout 3s --namespace k8s.io "$@"; }

# The pause process must exit on SIGTERM, so that no pod waits for its grace period, and must reap orphans. A shell does
# both with a tenth of the memory of a Go program.
# shellcheck disable=SC2016  # for the shell in the container to expand
pause_command='["/bin/sh", "-c", "trap \"exit 0\" TERM INT; while :; do sleep 2147483647 & wait $!; done"]'

load_test_images() {
  local busybox
  busybox=$(command -v busybox)
  python3 "$lib/image.py" busybox "$state/test-image.tar" "$test_image" --binary "$busybox"
  python3 "$lib/image.py" busybox "$state/pause-image.tar" "$pause_image" --binary "$busybox" --entrypoint "$pause_command"
  load_image "$state/test-image.tar"
  load_image "$state/pause-image.tar"
}

load_image() {
  # The last of two timeouts applies: a check of health is repeated, an import is not.
  containerd_ctl --connect-timeout 60s images import --snapshotter "$(awk -F'"' '/ snapshotter =/ { print $2 }' "$runtime/config.toml")" "$1" \
    >>"$logs/images.log" 2>&1 || fail_with_log images "containerd cannot import $1"
}

# The oom and cgroup settings are for machines without systemd and with cgroup v1. Other files on the machine's disk never
# cause an eviction or garbage collection. clusterDNS is an address without a DNS server, which refuses requests at once:
# without one, the kubelet would record a warning for each pod.
write_kubelet_config() {
  cat >"$state/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $bridge_address
port: $kubelet_port
healthzBindAddress: 127.0.0.1
healthzPort: $kubelet_health_port
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet.crt
tlsPrivateKeyFile: $pki/kubelet.key
containerRuntimeEndpoint: unix://$cri_socket
podLogsDir: $pod_logs
volumePluginDir: $state/kubelet/volume-plugins
clusterDomain: cluster.local
clusterDNS: [$bridge_address]
resolvConf: ""
featureGates: {KubeletInUserNamespace: true}
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
failSwapOn: false
makeIPTablesUtilChains: false
maxPods: 600
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
EOF
}

start_kubelet() {
  start kubelet "$(path_of kubelet)" --config "$state/kubelet.yaml" --kubeconfig "$kubeconfigs/kubelet-to-api" \
    --root-dir "$state/kubelet" --node-ip "$bridge_address" --hostname-override "$node_name"
}

# 0 leaves conntrack's kernel settings unchanged, because they apply to the whole machine.
start_kube-proxy() {
  start kube-proxy "$(path_of kube-proxy)" --kubeconfig "$kubeconfigs/kube-proxy" --hostname-override "$node_name" \
    --proxy-mode iptables --nodeport-addresses "$bridge_address/32" --cluster-cidr "$pod_range" --conntrack-max-per-core 0 \
    --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0 \
    --healthz-bind-address "127.0.0.1:$proxy_health_port" --metrics-bind-address "127.0.0.1:$proxy_metrics_port"
}

node_field() { admin get node "$node_name" --output "jsonpath=$1" 2>/dev/null; }
node_has_address() { [[ $(node_field '{.status.addresses[?(@.type=="InternalIP")].address}') == "$bridge_address" ]]; }
node_is_ready() { [[ $(node_field '{.status.conditions[?(@.type=="Ready")].status}') == True ]]; }
# A node can be Ready and still have the taint of its start.
node_takes_pods() { node_is_ready && [[ -z $(node_field '{.spec.taints}') ]]; }
kubelet_health() { get_raw "http://127.0.0.1:$kubelet_health_port" /healthz >/dev/null && node_is_ready && echo "node $node_name is Ready"; }
