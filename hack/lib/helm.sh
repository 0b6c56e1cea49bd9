# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# helm, from the Go module proxy like the control plane: the version that the chart's tests run.

helm_version=v3.22.0
helm_built=$cache/helm/$helm_version

# Prints where helm is: the one in PATH, else one of our own, built once (a minute and a half).
find_helm() {
  command -v helm && return
  if [[ ! -x $helm_built/helm ]]; then
    hold_lock build
    check_go >&2
    say "building helm $helm_version, once" >&2
    GOBIN=$helm_built CGO_ENABLED=0 nice -n 10 go install -trimpath -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@$helm_version" >&2 ||
      die "the build of helm failed; the compiler's words are above"
  fi
  printf '%s\n' "$helm_built/helm"
}
