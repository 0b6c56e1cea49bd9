# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Certificates of the cluster. One authority signs all of them. Keys are P-256, because an RSA key takes a second to make.
# Each cluster has new ones in its state folder. They are valid for ten years, so a cluster never needs others.

pki=$state/pki
kubeconfigs=$state/kubeconfigs
admin_kubeconfig=$kubeconfigs/admin

make_key() {
  openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>>"$pki/openssl.log" || no_certificate "$1"
}

no_certificate() {
  tail -n 5 "$pki/openssl.log" >&2
  die "openssl did not make $1; see its messages above"
}

make_authority() {
  mkdir -p "$pki" "$kubeconfigs"
  chmod 700 "$pki" "$kubeconfigs"
  make_key "$pki/ca.key"
  openssl req -x509 -new -key "$pki/ca.key" -subj "/CN=kruise-probe-cluster" -days 3650 -out "$pki/ca.crt" \
    -addext "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
  make_key "$pki/service-account.key"
  openssl pkey -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
}

# make_certificate NAME SUBJECT [ALTERNATIVE_NAMES]: a client certificate; with names, also for a server.
make_certificate() {
  local name=$1 subject=$2 names=${3:-} usage=clientAuth
  [[ -z $names ]] || usage=clientAuth,serverAuth
  make_key "$pki/$name.key"
  openssl req -new -key "$pki/$name.key" -subj "$subject" |
    openssl x509 -req -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -set_serial "0x$(openssl rand -hex 8)" -days 3650 \
      -out "$pki/$name.crt" 2>>"$pki/openssl.log" -extfile <(
        printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' "$usage"
        [[ -z $names ]] || printf 'subjectAltName=%s\n' "$names"
      ) || no_certificate "$pki/$name.crt"
}

# make_kubeconfig NAME SUBJECT: contains certificate and key, so it can be copied.
make_kubeconfig() {
  make_certificate "$1" "$2"
  cat >"$kubeconfigs/$1" <<EOF
apiVersion: v1
kind: Config
current-context: kruise-probe
contexts:
- {name: kruise-probe, context: {cluster: kruise-probe, user: $1}}
clusters:
- name: kruise-probe
  cluster:
    server: $(api_server)
    certificate-authority-data: $(base64 -w0 "$pki/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$pki/$1.crt")
    client-key-data: $(base64 -w0 "$pki/$1.key")
EOF
  chmod 600 "$kubeconfigs/$1"
}
