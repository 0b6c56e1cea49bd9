# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Downloads wheels for another system and another Python.

# Systems of the plugin, and of the commands for people. The images are for linux. Krew wants an .exe on Windows: there pip makes one.
plugin_systems=(linux-amd64 linux-arm64 darwin-amd64 darwin-arm64)
wheel_systems=("${plugin_systems[@]}" windows-amd64)
wheel_pythons=(3.11 3.12 3.13 3.14)

# this_system: prints the name of this machine, as in wheel_systems
this_system() {
  case $(uname -m) in
    x86_64) echo linux-amd64 ;;
    aarch64) echo linux-arm64 ;;
    *) die "there are no wheels for $(uname -m)" ;;
  esac
}

# wheel_options SYSTEM PYTHON: sets the caller's `options` to those of pip. Source distributions are never built.
wheel_options() {
  local tag tags
  case $1 in
    linux-amd64) tags=(manylinux{_2_28,_2_17,2014}_x86_64) ;;
    linux-arm64) tags=(manylinux{_2_28,_2_17,2014}_aarch64) ;;
    darwin-amd64) tags=(macosx_{10_{9..16},{11..14}_0}_{x86_64,universal2}) ;;
    darwin-arm64) tags=(macosx_{11..14}_0_{arm64,universal2} macosx_10_{9..16}_universal2) ;;
    windows-amd64) tags=(win_amd64) ;;
  esac
  options=(--only-binary :all: --implementation cp --python-version "$2")
  for tag in "${tags[@]}"; do options+=(--platform "$tag"); done
}

# pins_for SYSTEM REQUIREMENTS: prints the pins without those for Linux only, as pip evaluates markers on this machine.
pins_for() {
  local skip="sys_platform == 'linux'"
  [[ $1 != linux-* ]] || skip="no pin"
  awk -v skip="$skip" '/^[a-z]/ { keep = !index($0, skip) } keep' "$2"
}

# download_wheels SYSTEM PYTHON REQUIREMENTS FOLDER: downloads the wheel of each pin, and checks its hash.
download_wheels() {
  local options
  wheel_options "$1" "$2"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes "${options[@]}" \
    --requirement <(pins_for "$1" "$3") --dest "$4"
}
