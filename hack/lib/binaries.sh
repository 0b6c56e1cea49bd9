# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# The binaries of Kubernetes, etcd and containerd: built once from the Go module proxy, verified by Go's checksum database,
# and kept in a cache outside the checkout, one folder for each version.

# What hack/cluster can start. The first of a list is the default.
kubernetes_versions=(1.37.2 1.36.3 1.33.13 1.30.14)
containerd_versions=(2.4.2 1.6)  # 1.6 is Debian's package
etcd_version=3.7.3
kubernetes_binaries=(kube-apiserver kube-controller-manager kubectl kube-scheduler kubelet kube-proxy)
containerd_binaries=(containerd ctr containerd-shim-runc-v2)

# choose NAME WANTED VERSION...: prints the first version that is WANTED or begins with it; the first of all if WANTED is empty.
choose() {
  local name=$1 wanted=$2 version
  shift 2
  for version in "$@"; do
    if [[ -z $wanted || $version == "$wanted" || $version == "$wanted".* ]]; then
      printf '%s\n' "$version"
      return
    fi
  done
  die "there is no $name $wanted; there are: $*"
}

# choose_versions KUBERNETES CONTAINERD: sets the versions and the folders of their binaries.
choose_versions() {
  kubernetes_version=$(choose Kubernetes "$1" "${kubernetes_versions[@]}")
  containerd_version=$(choose containerd "$2" "${containerd_versions[@]}")
  kubernetes_built=$cache/kubernetes/$kubernetes_version
  containerd_built=$cache/containerd/$containerd_version
}
choose_versions "${KRUISE_PROBE_KUBERNETES:-}" "${KRUISE_PROBE_CONTAINERD:-}"

# path_of BINARY: its path, whether it exists or not. KUBEBUILDER_ASSETS is the folder of controller-runtime's envtest,
# which has these three binaries.
path_of() {
  case $1 in
    etcd | kube-apiserver | kubectl) printf '%s/%s\n' "${KUBEBUILDER_ASSETS:-$kubernetes_built}" "$1" ;;
    containerd*) printf '%s/%s\n' "$containerd_built" "$1" ;;
    ctr) if containerd_is_built; then printf '%s/ctr\n' "$containerd_built"; else echo ctr; fi ;;
    *) printf '%s/%s\n' "$kubernetes_built" "$1" ;;
  esac
}

containerd_is_built() { [[ $containerd_version != 1.6 ]]; }

# build_binaries NAME...: builds those that are missing, at low priority, because it takes minutes.
build_binaries() {
  local name missing=()
  for name in "$@"; do
    if [[ -x $(path_of "$name") ]]; then continue; fi
    [[ -z ${KUBEBUILDER_ASSETS:-} || $(path_of "$name") != "$KUBEBUILDER_ASSETS"/* ]] ||
      die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no $name; unset it to build one"
    missing+=("$name")
  done
  # If nothing is missing, do not wait for a build of other binaries.
  ((${#missing[@]})) || return 0
  hold_lock build
  local kubernetes=() containerd=()
  for name in "${missing[@]}"; do
    if [[ -x $(path_of "$name") ]]; then continue; fi
    case $name in
      etcd)
        local etcd_built=$cache/etcd/$etcd_version
        [[ -x $etcd_built/server ]] || build_module "$etcd_built" go.etcd.io/etcd/server/v3 "v$etcd_version" "-s -w" "" ""
        mkdir -p "$kubernetes_built"
        ln -sf "$etcd_built/server" "$kubernetes_built/etcd"
        ;;
      containerd* | ctr) containerd+=("/cmd/$name") ;;
      *) kubernetes+=("/cmd/$name") ;;
    esac
  done
  if ((${#kubernetes[@]})); then
    # providerless leaves out the clouds' code, which older versions still contain.
    build_module "$kubernetes_built" k8s.io/kubernetes "v$kubernetes_version" "$(kubernetes_ldflags)" providerless "${kubernetes[@]}"
  fi
  if ((${#containerd[@]})); then
    build_module "$containerd_built" github.com/containerd/containerd/v2 "v$containerd_version" \
      "-s -w -X github.com/containerd/containerd/v2/version.Version=v$containerd_version" \
      no_btrfs,no_zfs,no_devmapper,no_aufs "${containerd[@]}"
  fi
}

# Sets the version as Kubernetes' releases do. client-go's user agent and the API server's features depend on it.
kubernetes_ldflags() {
  local package flags="-s -w" major minor
  IFS=. read -r major minor _ <<<"$kubernetes_version"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$kubernetes_version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  done
  printf '%s\n' "$flags"
}

# build_module FOLDER MODULE VERSION LDFLAGS TAGS PACKAGE...: builds packages of a module into FOLDER. Its subfolder
# `module` keeps the go.mod. Static binaries need no C compiler and run on any distribution.
build_module() {
  local folder=$1 module=$2 version=$3 ldflags=$4 tags=$5 name scratch
  shift 5
  check_go
  say "building $* of $module $version; all of Kubernetes takes 5 to 6 minutes on two cores, once"
  mkdir -p "$folder"
  rm -rf "$folder"/.building.*
  scratch=$(mktemp -d "$folder/.building.XXXXXX")
  # An interrupted build must not leave an incomplete binary under its final name.
  # shellcheck disable=SC2064  # expand the name of the folder now
  trap "rm -rf '$scratch'" EXIT
  mkdir -p "$scratch/module" "$scratch/binaries"
  write_module "$scratch/module" "$module" "$version"
  (cd "$scratch/module" &&
    CGO_ENABLED=0 nice -n 10 go build -mod=mod -trimpath -tags "$tags" -ldflags "$ldflags" -o "$scratch/binaries/" \
      "${@/#/"$module"}") || die "the build of $module $version failed; see the compiler's messages above"
  mv "$scratch"/binaries/* "$folder/"
  rm -rf "$folder/module"
  mv "$scratch/module" "$folder/"
  rm -rf "$scratch"
  trap - EXIT
  say "built into $folder"
}

# write_module FOLDER MODULE VERSION: a go.mod that requires the module and everything that its own go.mod requires. That
# one replaces modules of the same repository by folders that a module does not contain, so here they have the version
# that was released with it.
write_module() {
  local folder=$1 module=$2 version=$3 source
  source=$(go mod download -json "$module@$version" | sed -n 's/^\t*"Dir": "\(.*\)",\{0,1\}$/\1/p')
  [[ -n $source ]] || die "the Go module proxy has no $module $version"
  {
    echo "module kruise-probe.io/hack"
    sed -n '/^go /p; /^godebug /p; /^godebug (/,/^)/p; /^require (/,/^)/p' "$source/go.mod"
    echo "require $module $version"
    sed -n 's|^\t*\(replace \)\{0,1\}\(k8s.io/[a-z-]*\) => \./staging/.*|replace \2 => \2 v0.'"${version#v1.}"'|p' "$source/go.mod"
  } >"$folder/go.mod"
  cp "$source/go.sum" "$folder/go.sum"
  chmod u+w "$folder/go.sum"
}

check_go() {
  command -v go >/dev/null || die "building Kubernetes needs Go 1.26 or newer in PATH (https://go.dev/dl)"
}
