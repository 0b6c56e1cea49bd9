# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Programs that are built from the Go module proxy, like the control plane. Go's checksum database verifies them.

helm_version=v3.22.0
actionlint_version=v1.7.12

# Helm's own builds set the version of Kubernetes that `helm template` assumes; without it that is 1.20.
helm_kubernetes="-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36"

find_helm() { find_go_tool helm "$helm_version" helm.sh/helm/v3/cmd/helm "$helm_kubernetes"; }
find_actionlint() { find_go_tool actionlint "$actionlint_version" github.com/rhysd/actionlint/cmd/actionlint; }

# find_go_tool NAME VERSION PACKAGE [LDFLAGS]: prints the path of the program: the one in PATH, or ours, which is built once.
find_go_tool() {
  local name=$1 version=$2 package=$3 flags=${4:-}
  local folder=$cache/$name/$version${flags:+-linked}
  command -v "$name" && return
  if [[ ! -x $folder/$name ]]; then
    hold_lock build >&2
    check_go >&2
    say "building $name $version, once" >&2
    GOBIN=$folder CGO_ENABLED=0 nice -n 10 go install -trimpath -ldflags "-s -w $flags" "$package@$version" >&2 ||
      die "building $name failed; see the compiler's messages above"
  fi
  printf '%s\n' "$folder/$name"
}
