"""The tokenizers that tests and comparisons use: trained here, small, with the steps that published
models have. Their texts are Debian's (fortunes, Python's own sources)."""

import glob
import json
import sysconfig

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

GPT2_LIKE = r"'s|'t|'re|'ve|'m|'ll|'d"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
CLIP_PATTERN = GPT2_LIKE + r"|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BYTE_LEVEL_DECODER = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}


def texts():
    """Lines to train on: English, German, code, and a little of many scripts."""
    for path in sorted(glob.glob("/usr/share/games/fortunes/*")):
        if path.endswith((".dat", ".u8")):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file.read().splitlines()[:400]
    for path in sorted(glob.glob(sysconfig.get_paths()["stdlib"] + "/[a-f]*.py")):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file.read().splitlines(keepends=True)[:200]
    for line in (
        "Die Häuser größer als Straßen, für Übung",
        "voilà l'été où naît l'œuvre",
        "Быть или не быть, вот в чём вопрос",
        "人间四月芳菲尽，山寺桃花始盛开。",
        "こんにちは世界。カタカナ",
        "안녕하세요 세계",
        "مرحبا بالعالم",
        "नमस्ते दुनिया",
        "Γειά σου Κόσμε",
        "😀😁🚀👨‍👩‍👧‍👦❤️",
    ):
        for _ in range(30):
            yield line


def added(id, content, special=True, **flags):
    entry = {
        "id": id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }
    entry.update(flags)
    return entry


def trained(
    vocabulary,
    pre_tokenizer,
    normalizer=None,
    byte_level=True,
    specials=(),
    prefix="",
    suffix="",
    alphabet=(),
):
    """A BPE model's part of tokenizer.json, trained with the given steps."""
    affixes = {
        key: text
        for key, text in (("continuing_subword_prefix", prefix), ("end_of_word_suffix", suffix))
        if text
    }
    tokenizer = Tokenizer(models.BPE(**affixes))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    letters = pre_tokenizers.ByteLevel.alphabet() if byte_level else list(alphabet)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=sorted(letters),
        limit_alphabet=300,
        max_token_length=16,
        **affixes,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return json.loads(tokenizer.to_str())["model"]


def file(model, **steps):
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
    }
    document.update(steps)
    document["model"] = model
    return document


def byte_level(use_regex=True, add_prefix_space=False, trim_offsets=True):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def template(token, id):
    return {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": token, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
    }


def gpt2():
    model = trained(2000, pre_tokenizers.ByteLevel(add_prefix_space=False))
    count = len(model["vocab"])
    return file(
        model,
        pre_tokenizer=byte_level(),
        decoder=BYTE_LEVEL_DECODER,
        post_processor=byte_level(add_prefix_space=True, trim_offsets=False),
        added_tokens=[added(count, "<|endoftext|>", normalized=True)],
    )


def llama3():
    model = trained(2000, pre_tokenizers.ByteLevel(add_prefix_space=False))
    count = len(model["vocab"])
    # Whole words that no merges lead to.
    for word in ("Ġgradient", "Ġupon", "tokenizer"):
        model["vocab"].setdefault(word, len(model["vocab"]))
    model["ignore_merges"] = True
    count = len(model["vocab"])
    names = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ]
    return file(
        model,
        pre_tokenizer=sequence("pretokenizers", split(LLAMA3_PATTERN), byte_level(use_regex=False)),
        decoder=BYTE_LEVEL_DECODER,
        post_processor=sequence(
            "processors", byte_level(add_prefix_space=True), template(names[0], count)
        ),
        added_tokens=[added(count + i, name) for i, name in enumerate(names)],
    )


def qwen3():
    model = trained(2000, pre_tokenizers.ByteLevel(add_prefix_space=False))
    model["merges"] = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    count = len(model["vocab"])
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    plain = ["<think>", "</think>", "<tool_call>"]
    tokens = [added(count + i, name) for i, name in enumerate(specials)]
    tokens += [added(count + 3 + i, name, special=False) for i, name in enumerate(plain)]
    return file(
        model,
        normalizer={"type": "NFC"},
        added_tokens=tokens,
        decoder=BYTE_LEVEL_DECODER,
        pre_tokenizer=sequence(
            "pretokenizers", split(QWEN_PATTERN), byte_level(use_regex=False, trim_offsets=False)
        ),
        post_processor=byte_level(trim_offsets=False),
    )


def sentencepiece_model(vocabulary):
    """Byte tokens first, as SentencePiece has them."""
    base = trained(
        vocabulary, pre_tokenizers.Metaspace(), byte_level=False, specials=["<unk>", "<s>", "</s>"]
    )
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += [t for t in base["vocab"] if t not in ("<unk>", "<s>", "</s>")]
    merges = [m if isinstance(m, str) else " ".join(m) for m in base["merges"]]
    for run in ("▁▁", "▁▁▁▁", "▁▁▁▁▁▁▁▁"):
        if run not in tokens:
            tokens.append(run)
            merges.append(run[: len(run) // 2] + " " + run[len(run) // 2 :])
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {t: i for i, t in enumerate(tokens)},
        "merges": merges,
    }


SENTENCEPIECE_ADDED = [added(i, name) for i, name in enumerate(["<unk>", "<s>", "</s>"])]


def mistral():
    return file(
        sentencepiece_model(2000),
        added_tokens=SENTENCEPIECE_ADDED,
        normalizer=sequence(
            "normalizers",
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ),
        post_processor=template("<s>", 1),
        decoder=sequence(
            "decoders",
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ),
    )


def metaspace():
    """The newer form of Llama 2, and no bytes to fall back to."""
    model = sentencepiece_model(2000)
    model["byte_fallback"] = False
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return file(
        model,
        added_tokens=SENTENCEPIECE_ADDED,
        pre_tokenizer=metaspace,
        decoder=metaspace,
        post_processor=template("<s>", 1),
    )


def clip():
    model = trained(2000, pre_tokenizers.ByteLevel(add_prefix_space=False), suffix="</w>")
    # An alphabet with and without the suffix, as CLIP has it.
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        for text in (letter, letter + "</w>"):
            model["vocab"].setdefault(text, len(model["vocab"]))
    count = len(model["vocab"])
    return file(
        model,
        added_tokens=[
            added(count, "<|startoftext|>", normalized=True),
            added(count + 1, "<|endoftext|>", lstrip=True, rstrip=True),
            added(count + 2, "Word", special=False, single_word=True, normalized=True),
        ],
        normalizer=sequence(
            "normalizers",
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ),
        pre_tokenizer=sequence(
            "pretokenizers",
            split(CLIP_PATTERN, "Removed", invert=True),
            byte_level(use_regex=False),
        ),
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["<|endoftext|>", count + 1],
            "cls": ["<|startoftext|>", count],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        decoder=BYTE_LEVEL_DECODER,
    )


def bert():
    """Classes of characters, normal forms, and pieces with a prefix."""
    model = trained(
        2000,
        pre_tokenizers.BertPreTokenizer(),
        byte_level=False,
        prefix="##",
        normalizer=normalizers.Sequence(
            [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
        ),
        specials=["[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    )
    model["unk_token"] = "[UNK]"
    return file(
        model,
        added_tokens=[
            added(0, "[UNK]"),
            added(1, "[CLS]"),
            added(2, "[SEP]"),
            added(3, "[MASK]", lstrip=True),
        ],
        normalizer=sequence(
            "normalizers",
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
        ),
        pre_tokenizer=sequence(
            "pretokenizers",
            {"type": "BertPreTokenizer"},
            {"type": "Digits", "individual_digits": False},
        ),
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    )


def starcoder():
    model = trained(2000, pre_tokenizers.ByteLevel(add_prefix_space=True))
    count = len(model["vocab"])
    return file(
        model,
        added_tokens=[
            added(count, "<|endoftext|>"),
            added(count + 1, "    ", special=False, normalized=True),
        ],
        normalizer={"type": "NFKC"},
        decoder=BYTE_LEVEL_DECODER,
        pre_tokenizer=sequence(
            "pretokenizers",
            {"type": "Digits", "individual_digits": True},
            {"type": "Punctuation", "behavior": "MergedWithPrevious"},
            byte_level(add_prefix_space=True),
        ),
        post_processor=byte_level(add_prefix_space=True),
    )


ALL = {f.__name__: f for f in (gpt2, llama3, qwen3, mistral, metaspace, clip, bert, starcoder)}
