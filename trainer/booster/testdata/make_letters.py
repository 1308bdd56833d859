#!/usr/bin/env python3
"""Writes letters/: a tokenizer of 35 tokens for the small models of trainer/hugging_face/testdata.

Byte-level BPE over a-z, space and line end with four merges; three special tokens; a chat template.
"""
import json
import pathlib
import string

FOLDER = pathlib.Path(__file__).parent / "letters"
SPECIAL = ["<pad>", "<s>", "</s>"]
MERGES = [["t", "h"], ["th", "e"], ["i", "n"], ["\u0120", "the"]]
VOCABULARY = {
    token: number
    for number, token in enumerate(
        [*SPECIAL, "\u0120", "\u010a", *string.ascii_lowercase, *("".join(m) for m in MERGES)]
    )
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": VOCABULARY[t], "content": t, **FLAGS} for t in SPECIAL],
    "normalizer": None,
    "pre_tokenizer": BYTE_LEVEL,
    "post_processor": None,
    "decoder": BYTE_LEVEL,
    "model": {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": VOCABULARY, "merges": MERGES,
    },
}
CONFIG = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "chat_template": "{{ bos_token }}{% for m in messages %}{{ m['role'] }} says {{ m['content'] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant says {% endif %}",
}

FOLDER.mkdir(exist_ok=True)
for name, content in [("tokenizer.json", TOKENIZER), ("tokenizer_config.json", CONFIG)]:
    (FOLDER / name).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
