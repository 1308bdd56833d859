# Installs what Gantry needs from Debian. Sourced by ./dev.
# shellcheck shell=bash

# Without these nothing builds.
readonly build_packages=(
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  g++-12 python3
  libabsl-dev libbenchmark-dev libboost-context-dev libdnnl-dev libgmock-dev libgtest-dev libhwy-dev
  libpcre2-dev liburing-dev libtbb-dev libutf8proc-dev libxxhash-dev libyaml-cpp-dev
  nlohmann-json3-dev
)
# Checks, the demonstration's text, and the tools some tests and benchmarks drive.
readonly tool_packages=(
  clang-19 clang-format-19 clang-tidy-19 shellcheck
  fortunes
  fio strace
  python3-venv
  chromium-headless-shell
)

# Prints those of its arguments that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      echo "$package"
    fi
  done
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

apt() {
  local log
  log=$(mktemp)
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

setup() {
  local missing
  command -v apt-get >/dev/null || die "setup knows Debian and its relatives only (no apt-get)"
  mapfile -t missing < <(missing_packages "${build_packages[@]}" "${tool_packages[@]}")
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "setup: all packages are installed"
    return
  fi
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    die "setup needs root or sudo to install: ${missing[*]}"
  fi
  say "setup: reading the package lists"
  apt update || say "setup: the lists could not be read; trying with what is there"
  local package
  for package in "${missing[@]}"; do
    say "setup: installing $package"
    apt install --yes --no-install-recommends "$package" || die "setup: cannot install $package"
  done
  say "setup: done"
}

# For the commands that set up by themselves: silent when there is nothing to do.
setup_quietly() {
  if ! command -v dpkg-query >/dev/null; then
    return
  fi
  if [[ -n $(missing_packages "${build_packages[@]}" "${tool_packages[@]}") ]]; then
    setup
  fi
}
