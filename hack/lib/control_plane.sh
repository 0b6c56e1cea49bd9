# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# etcd, kube-apiserver, kube-controller-manager and, with a node, kube-scheduler.
# With a node they listen on the address of the pods' bridge, which only the host and its pods can reach. Without one
# they listen on loopback and need no root.

api_port=${KRUISE_PROBE_CLUSTER_PORT:-16443}
if [[ ! $api_port =~ ^[0-9]{4,5}$ ]] || ((api_port < 1024 || api_port > 65500)); then
  die "KRUISE_PROBE_CLUSTER_PORT=$api_port is not a valid port; set a number from 1024 to 65500"
fi
# The ports after it, in the order of the components' start.
etcd_port=$((api_port + 1))
etcd_peer_port=$((api_port + 2))
controller_manager_port=$((api_port + 3))
scheduler_port=$((api_port + 4))
kubelet_port=$((api_port + 5))
kubelet_health_port=$((api_port + 6))
proxy_health_port=$((api_port + 7))
proxy_metrics_port=$((api_port + 8))

service_range=10.96.0.0/16
first_service=10.96.0.1
bridge_address=10.213.0.1

# kubectl's cache of resources. In the home folder the next cluster would use it too.
kubectl_cache=$state/kubectl-cache

# Whether the cluster has a node and an audit log. Written once; `status` and `up` read it.
mode_file=$state/mode
mode_has() { [[ -r $mode_file && " $(<"$mode_file") " == *" $1 "* ]]; }

api_address() { if mode_has node; then echo "$bridge_address"; else echo 127.0.0.1; fi; }
api_server() { printf 'https://%s:%s\n' "$(api_address)" "$api_port"; }

# get_raw SERVER PATH: GET by kubectl, because curl may not be installed.
get_raw() { admin get --server "$1" --raw "$2"; }
admin() {
  "$(path_of kubectl)" --kubeconfig "$admin_kubeconfig" --cache-dir "$kubectl_cache" --request-timeout 5s "$@"
}

# check_ports MODE: fails if a port is in use, and names the process.
check_ports() {
  local port last=$controller_manager_port taken=()
  if [[ $1 == node* ]]; then last=$proxy_metrics_port; fi
  for ((port = api_port; port <= last; port++)); do
    if is_listened_on "$port"; then taken+=("$port ($(listener_of "$port"))"); fi
  done
  ((${#taken[@]} == 0)) ||
    die "taken ports: ${taken[*]}; end these processes, or set KRUISE_PROBE_CLUSTER_PORT to the first of nine free ports ($api_port is what was tried)"
}

# The inode of the socket that listens on a port of this machine, in whatever family.
listening_inode() {
  awk -v port="$(printf ':%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { print $10; exit }' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null
}
is_listened_on() { [[ -n $(listening_inode "$1") ]]; }

listener_of() {
  local file pid
  file=$(find /proc/[0-9]*/fd -lname "socket:\[$(listening_inode "$1")\]" -print -quit 2>/dev/null) || true
  pid=${file#/proc/}
  pid=${pid%%/*}
  if [[ -n $pid ]]; then echo "$(<"/proc/$pid/comm"), pid $pid"; else echo "a process of another user"; fi
}

make_control_plane_identities() {
  make_authority
  make_certificate kube-apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,\
DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$first_service,IP:$bridge_address"
  make_certificate loopback /CN=loopback IP:127.0.0.1
  make_certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  make_kubeconfig admin /O=system:masters/CN=kruise-probe-admin
  make_kubeconfig kube-controller-manager /CN=system:kube-controller-manager
  make_kubeconfig kube-scheduler /CN=system:kube-scheduler
}

# Without fsync, because the data is temporary. 150,000 pods and five minutes of their writes exceed the default quota of 2 GB.
start_etcd() {
  start etcd "$(path_of etcd)" --name default --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn --quota-backend-bytes 8589934592 \
    --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
    --listen-peer-urls "http://127.0.0.1:$etcd_peer_port" \
    --initial-advertise-peer-urls "http://127.0.0.1:$etcd_peer_port" \
    --initial-cluster "default=http://127.0.0.1:$etcd_peer_port"
}

start_kube-apiserver() {
  local more=()
  if mode_has node; then
    more+=(--advertise-address "$bridge_address" --kubelet-preferred-address-types InternalIP
      --kubelet-certificate-authority "$pki/ca.crt"
      --kubelet-client-certificate "$pki/kubelet-client.crt" --kubelet-client-key "$pki/kubelet-client.key")
  else
    # A loopback address cannot be an endpoint of the Service `kubernetes`, which is only needed with pods.
    more+=(--endpoint-reconciler-type none)
  fi
  if mode_has audit; then
    printf '%s\n' 'apiVersion: audit.k8s.io/v1' 'kind: Policy' 'omitStages: [RequestReceived]' \
      'rules: [{level: Metadata}]' >"$state/audit-policy.yaml"
    more+=(--audit-policy-file "$state/audit-policy.yaml" --audit-log-path "$logs/audit.log")
  fi
  start kube-apiserver "$(path_of kube-apiserver)" \
    --etcd-servers "http://127.0.0.1:$etcd_port" \
    --bind-address "$(api_address)" --secure-port "$api_port" \
    --tls-cert-file "$pki/kube-apiserver.crt" --tls-private-key-file "$pki/kube-apiserver.key" \
    --client-ca-file "$pki/ca.crt" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-signing-key-file "$pki/service-account.key" \
    --service-account-key-file "$pki/service-account.pub" \
    --service-cluster-ip-range "$service_range" \
    "${more[@]}"
}

# Namespaces need the service-account key and the root CA for their service account. RBAC's rules are for the credentials
# of single controllers.
start_kube-controller-manager() {
  local controllers='*'
  # Without kubelets nothing renews a node, and nothing completes the deletion of evicted pods.
  if ! mode_has node; then controllers='*,-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller'; fi
  start kube-controller-manager "$(path_of kube-controller-manager)" \
    --kubeconfig "$kubeconfigs/kube-controller-manager" --bind-address 127.0.0.1 --secure-port "$controller_manager_port" \
    --tls-cert-file "$pki/loopback.crt" --tls-private-key-file "$pki/loopback.key" --leader-elect=false --use-service-account-credentials --root-ca-file "$pki/ca.crt" \
    --service-account-private-key-file "$pki/service-account.key" --controllers "$controllers" \
    --kube-api-qps 200 --kube-api-burst 400
}

start_kube-scheduler() {
  start kube-scheduler "$(path_of kube-scheduler)" \
    --kubeconfig "$kubeconfigs/kube-scheduler" --bind-address 127.0.0.1 --secure-port "$scheduler_port" \
    --tls-cert-file "$pki/loopback.crt" --tls-private-key-file "$pki/loopback.key" --leader-elect=false --kube-api-qps 200 --kube-api-burst 400
}

# health_of NAME: prints the component's health, or nothing if it is not healthy.
health_of() {
  case $1 in
    etcd) get_raw "http://127.0.0.1:$etcd_port" /health | grep -o '"health":"true"' ;;
    kube-apiserver) admin get --raw /readyz ;;
    kube-controller-manager) get_raw "https://127.0.0.1:$controller_manager_port" /healthz ;;
    kube-scheduler) get_raw "https://127.0.0.1:$scheduler_port" /healthz ;;
    containerd) containerd_ctl version | awk '/Version:/ { version = $2 } END { print version }' ;;
    kubelet) kubelet_health ;;
    kube-proxy) get_raw "http://127.0.0.1:$proxy_health_port" /livez >/dev/null && echo ok ;;
  esac
}
healthy() { [[ -n $(health_of "$1" 2>/dev/null) ]]; }

# The API server refuses pods in a namespace without a service account.
has_default_service_account() { admin --namespace default get serviceaccount default >/dev/null 2>&1; }
