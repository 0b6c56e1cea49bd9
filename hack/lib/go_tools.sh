# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Programs that are built from the Go module proxy, like the control plane. Go's checksum database verifies them.

helm_version=v3.22.0
actionlint_version=v1.7.12

find_helm() { find_go_tool helm "$helm_version" helm.sh/helm/v3/cmd/helm; }
find_actionlint() { find_go_tool actionlint "$actionlint_version" github.com/rhysd/actionlint/cmd/actionlint; }

# find_go_tool NAME VERSION PACKAGE: prints the path of the program: the one in PATH, or ours, which is built once.
find_go_tool() {
  local name=$1 version=$2 package=$3
  command -v "$name" && return
  if [[ ! -x $cache/$name/$version/$name ]]; then
    hold_lock build
    check_go >&2
    say "building $name $version, once" >&2
    GOBIN=$cache/$name/$version CGO_ENABLED=0 nice -n 10 go install -trimpath -ldflags '-s -w' "$package@$version" >&2 ||
      die "building $name failed; see the compiler's messages above"
  fi
  printf '%s\n' "$cache/$name/$version/$name"
}
