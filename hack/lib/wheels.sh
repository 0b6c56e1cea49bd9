# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Downloads wheels for another machine type and another Python.

# Machine types of the images and the plugin, and supported versions of Python.
wheel_machines=(x86_64 aarch64)
wheel_pythons=(3.11 3.12 3.13 3.14)

# wheel_options MACHINE PYTHON: sets the caller's `options` to those of pip. Source distributions are never built.
wheel_options() {
  options=(--only-binary :all: --implementation cp --python-version "$2"
    --platform "manylinux_2_28_$1" --platform "manylinux_2_17_$1" --platform "manylinux2014_$1")
}

# download_wheels MACHINE PYTHON REQUIREMENTS FOLDER: downloads the wheel of each pin, and checks its hash.
download_wheels() {
  local options
  wheel_options "$1" "$2"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes "${options[@]}" \
    --requirement "$3" --dest "$4"
}
