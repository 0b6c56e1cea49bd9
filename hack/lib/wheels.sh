# shellcheck shell=bash disable=SC2034,SC2154  # variables of one file are used in another; `set -u` finds what is not set
# Wheels for a machine and a Python that need not be this one.

# What the images and the plugin run on, and what the project supports.
wheel_machines=(x86_64 aarch64)
wheel_pythons=(3.11 3.12 3.13 3.14)

# wheel_options MACHINE PYTHON: puts pip's options into the caller's `options`. No source is ever built.
wheel_options() {
  options=(--only-binary :all: --implementation cp --python-version "$2"
    --platform "manylinux_2_28_$1" --platform "manylinux_2_17_$1" --platform "manylinux2014_$1")
}

# download_wheels MACHINE PYTHON REQUIREMENTS FOLDER: a wheel of every pin, with the hashes of the pins.
download_wheels() {
  local options
  wheel_options "$1" "$2"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes "${options[@]}" \
    --requirement "$3" --dest "$4"
}
