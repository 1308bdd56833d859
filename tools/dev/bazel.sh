# Running Bazel. Sourced by ./dev.
# shellcheck shell=bash
: "${root:?is set by ./dev}"

# GANTRY_OUTPUT_BASE lets two people, or two checkouts, build side by side.
run_bazel() {
  local startup=() command=$1
  shift
  if [[ -n ${GANTRY_OUTPUT_BASE:-} ]]; then
    startup=(--output_base="$GANTRY_OUTPUT_BASE")
  fi
  local flags=()
  if [[ ! -t 2 ]]; then
    flags=(--curses=no --color=no --show_progress_rate_limit=15)
  fi
  bazel "${startup[@]}" "$command" "${flags[@]}" "$@"
}

# Prints the labels a query finds; nothing when it finds none.
bazel_query() {
  (cd "$root" && run_bazel query --noshow_progress --ui_event_filters=-info "$1")
}

# Builds, and shows a line now and then; the whole log only when it fails.
build_quietly() {
  local log bazel_pid status=0 seconds=0 progress
  log=$(mktemp)
  (cd "$root" && run_bazel build --curses=no --color=no --show_progress_rate_limit=1 "$@") \
    >"$log" 2>&1 &
  bazel_pid=$!
  while kill -0 "$bazel_pid" 2>/dev/null; do
    sleep 0.1
    seconds=$((seconds + 1))
    if ((seconds % 100 == 0)); then
      progress=$(grep -oE '^\[[0-9,]+ / [0-9,]+\]' "$log" | tail -n 1 || true)
      say "building ${progress:-(loading)}, $((seconds / 10)) s"
    fi
  done
  wait "$bazel_pid" || status=$?
  if [[ $status -ne 0 ]]; then
    grep -vE '^(\[|Loading:|Analyzing:|INFO:)' "$log" >&2 || true
  fi
  rm -f "$log"
  return "$status"
}

# The path of a built program: binary_path LABEL [FLAGS the build had]
binary_path() {
  local label=$1 output
  shift
  output=$(cd "$root" && run_bazel info --noshow_progress --ui_event_filters=-info "$@" bazel-bin)
  label=${label#//}
  echo "$output/${label/://}"
}

# What `./dev test PATTERN` means, as Bazel targets.
test_targets() {
  local pattern=${1:-} found
  if [[ -z $pattern ]]; then
    echo //...
  elif [[ $pattern == //* ]]; then
    echo "$pattern"
  elif [[ -d $root/${pattern%/} ]]; then
    echo "//${pattern%/}/..."
  else
    found=$(bazel_query "filter('$pattern', tests(//...))")
    [[ -n $found ]] || die "no test's name holds '$pattern'"
    echo "$found"
  fi
}

# Runs tests and prints the count of cases: run_tests "TARGETS" [BAZEL FLAGS]
run_tests() {
  local targets=$1 events status=0
  shift
  if [[ -z $targets ]]; then
    say "dev: no tests to run"
    return 2
  fi
  events=$(mktemp)
  # shellcheck disable=SC2086  # one word per target
  (cd "$root" && run_bazel test --keep_going --test_tag_filters=-gpu \
    --build_event_json_file="$events" "$@" -- $targets) >&2 || status=$?
  python3 "$root/tools/dev/test_summary.py" "$status" "$events" || status=$?
  rm -f "$events"
  return "$status"
}
