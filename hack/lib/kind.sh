# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Names for hack/kind-up, kind-load and kind-down. Without Docker, use hack/cluster.

kind_name=${KRUISE_PROBE_KIND_NAME:-kruise-probe}
# Not in /tmp, where another user could make the file first.
kind_kubeconfig=$cache/kind-$kind_name.kubeconfig
# The image of the tests' pods. hack/cluster makes one from Debian's busybox.
busybox_image=busybox:1.37@sha256:9db7b59979c38555a39def84a31fb98b5296952f9e3afd4f6f11f05b07adfab0

check_kind() {
  command -v docker >/dev/null || die "Docker is missing (https://docs.docker.com/engine/install); without it use hack/cluster up"
  command -v kind >/dev/null || die "kind is missing; install it: go install sigs.k8s.io/kind@latest"
  docker info >/dev/null 2>&1 || die "Docker does not respond; start it, or check that you may use it: docker info"
}

kind_exists() { kind get clusters 2>/dev/null | grep -qx "$kind_name"; }
