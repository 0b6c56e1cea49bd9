# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# The Kubernetes and etcd binaries: built once from the Go module proxy (hack/controlplane pins and verifies them), kept
# in a cache outside the checkout, one folder per pair of versions.

# module_version FOLDER MODULE: the version that a go.mod under hack/controlplane requires.
module_version() {
  awk -v module="$2" '{ sub(/^require /, "") } $1 == module && $2 ~ /^v/ { print $2; exit }' \
    "$checkout/hack/controlplane/$1/go.mod"
}

kubernetes_version=$(module_version kubernetes k8s.io/kubernetes)
etcd_version=$(module_version etcd go.etcd.io/etcd/server/v3)
built=$cache/controlplane/$kubernetes_version-etcd-$etcd_version

# path_of BINARY: its path, whether it exists or not. KUBEBUILDER_ASSETS is the folder of controller-runtime's envtest,
# which has these three binaries.
path_of() {
  case $1 in
    etcd | kube-apiserver | kubectl) printf '%s/%s\n' "${KUBEBUILDER_ASSETS:-$built}" "$1" ;;
    *) printf '%s/%s\n' "$built" "$1" ;;
  esac
}

# find_missing NAME...: sets the caller's `missing` to those that do not exist.
find_missing() {
  local name
  missing=()
  for name in "$@"; do
    if [[ -x $(path_of "$name") ]]; then continue; fi
    [[ $(path_of "$name") == "$built"/* ]] || die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no $name; unset it to build one"
    missing+=("$name")
  done
}

# build_binaries NAME...: builds those that are missing, at low priority, because it takes minutes.
build_binaries() {
  local missing=()
  find_missing "$@"
  # If nothing is missing, do not wait for a build of other binaries.
  ((${#missing[@]})) || return 0
  hold_lock build
  find_missing "$@"
  ((${#missing[@]})) || return 0

  check_go
  say "building ${missing[*]} (Kubernetes $kubernetes_version, etcd $etcd_version); all of them take 5 to 6 minutes on two cores, once"
  mkdir -p "$built"
  rm -rf "$built"/.building.*
  local name scratch
  scratch=$(mktemp -d "$built/.building.XXXXXX")
  # An interrupted build must not leave an incomplete binary under its final name.
  # shellcheck disable=SC2064  # expand the name of the folder now
  trap "rm -rf '$scratch'" EXIT
  local kubernetes=()
  for name in "${missing[@]}"; do
    if [[ $name == etcd ]]; then
      go_build etcd "-s -w" "$scratch/etcd" go.etcd.io/etcd/server/v3
    else
      kubernetes+=("k8s.io/kubernetes/cmd/$name")
    fi
  done
  if ((${#kubernetes[@]})); then go_build kubernetes "$(kubernetes_ldflags)" "$scratch/" "${kubernetes[@]}"; fi
  mv "$scratch"/* "$built/"
  rm -rf "$scratch"
  trap - EXIT
  say "built into $built"
}

# Sets the version as Kubernetes' releases do. client-go's user agent and the API server's features depend on it.
kubernetes_ldflags() {
  local package flags="-s -w" major minor
  IFS=. read -r major minor _ <<<"${kubernetes_version#v}"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$kubernetes_version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  done
  printf '%s\n' "$flags"
}

# Static binaries need no C compiler and run on any distribution.
go_build() {
  local folder=$1 ldflags=$2 output=$3
  shift 3
  (cd "$checkout/hack/controlplane/$folder" &&
    CGO_ENABLED=0 nice -n 10 go build -trimpath -ldflags "$ldflags" -o "$output" "$@") ||
    die "the build of $* failed; see the compiler's messages above"
}

check_go() {
  local wanted
  wanted=$(awk '$1 == "go" { print $2; exit }' "$checkout/hack/controlplane/kubernetes/go.mod")
  command -v go >/dev/null || die "building Kubernetes $kubernetes_version needs Go $wanted or newer in PATH (https://go.dev/dl)"
  # Go checks its version, and by default downloads a newer one if needed.
  (cd "$checkout/hack/controlplane/kubernetes" && go list -m >/dev/null) ||
    die "building Kubernetes $kubernetes_version needs Go $wanted or newer (https://go.dev/dl)"
}
