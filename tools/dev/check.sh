# Checks that compile nothing. Sourced by ./dev.
# shellcheck shell=bash
: "${root:?is set by ./dev}"

# Every file with one of these name patterns that is ours, one per line, relative to the root.
sources() {
  local pattern names=()
  for pattern in "$@"; do
    names+=(-o -name "$pattern")
  done
  (cd "$root" && find . -path './.*' -prune -o -path './bazel-*' -prune -o \
    -type f \( "${names[@]:1}" \) -print | sort)
}

cpp_sources() { sources '*.h' '*.cc' '*.cu' '*.cuh'; }

# Runs one check, says how it went, and remembers a failure: step NAME COMMAND...
step() {
  local name=$1
  shift
  if "$@"; then
    say "check: $name: ok"
  else
    say "check: $name: FAILED"
    check_failed=1
  fi
}

# The Python tests of a folder in tools/; their output only when they fail.
python_tests() {
  local output
  if ! output=$(cd "$root/tools" && python3 -m unittest discover --start-directory "$1" \
    --pattern '*_test.py' --buffer 2>&1); then
    echo "$output"
    return 1
  fi
}

# Names the files that clang-format would change.
format_check() {
  local output
  if ! output=$(cpp_sources | (cd "$root" && xargs -r clang-format-19 --dry-run -Werror) 2>&1); then
    sed -nE 's|^(\./)?([^:]+):[0-9]+:[0-9]+: error: code should be clang-formatted.*|\2|p' \
      <<<"$output" | sort | uniq -c |
      awk '{print $2 ": " $1 " places differ from clang-format; ./dev format mends them"}'
    grep -q 'clang-formatted' <<<"$output" || echo "$output"
    return 1
  fi
}

format() {
  cpp_sources | (cd "$root" && xargs -r clang-format-19 -i)
}

shell_check() {
  (cd "$root" && shellcheck --external-sources dev .ci/run && shellcheck tools/dev/*.sh)
}

build_files_check() {
  (cd "$root" && run_bazel build --nobuild --noshow_progress --ui_event_filters=-info //...)
}

check() {
  check_failed=0
  setup_quietly
  step "tests of tools/layers" python_tests layers
  step "tests of tools/dev" python_tests dev
  step "layers and tidy rules" python3 "$root/tools/layers"
  step "clang-format" format_check
  step "shellcheck" shell_check
  step "BUILD files and visibility" build_files_check
  return "$check_failed"
}

tidy() {
  local flags=(-std=c++20 -I. -Wall -Wextra)
  if [[ -d /usr/local/cuda/include ]]; then
    flags+=(-DGANTRY_CUDA=1 -isystem /usr/local/cuda/include)
  fi
  [[ $# -gt 0 ]] || die "tidy: which files?"
  local file
  for file in "$@"; do
    say "tidy: $file"
    (cd "$root" && clang-tidy-19 --quiet "$file" -- "${flags[@]}")
  done
}
