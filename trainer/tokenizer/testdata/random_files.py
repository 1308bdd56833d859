"""Random tokenizer.json files: any supported steps, in any order, on a small vocabulary."""

import random

from tokenizers_under_test import CLIP_PATTERN, LLAMA3_PATTERN, added, byte_level, split, template

PATTERNS = [
    LLAMA3_PATTERN,
    CLIP_PATTERN,
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+",
    r"\w+|[^\w\s]+",
    r"\b",
    r"\s+",
    r"^a|b$",
    r"[a-c]{2,}?",
    r"(?<=a)b|(?<!b)c",
    r"x*",
    r"\p{Han}+|\p{Hiragana}|\P{L}\p{^Lu}",
    r"\h\H\d\D",
]
LETTERS = "abcdeAB \n\t.,'!?-_#$12345éßİſ▁Ġ人あ한😀\u0301"


class RandomFiles:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def maybe(self, value, otherwise=None):
        return value if self.random.randrange(2) else otherwise

    def some(self, make, most=3):
        return [make() for _ in range(self.random.randrange(1, most + 1))]

    def pattern(self):
        r = self.random
        if r.randrange(3) == 0:
            return {"String": r.choice(["a", " ", "ab", "▁", "..", "é", "\n"])}
        return {"Regex": r.choice(PATTERNS)}

    def normalizer(self):
        r = self.random
        kind = r.choice("NFC NFD NFKC NFKD Lowercase StripAccents Strip Prepend Replace".split())
        step = {"type": kind}
        if kind == "Strip":
            step.update(strip_left=bool(r.randrange(2)), strip_right=bool(r.randrange(2)))
        if kind == "Prepend":
            step["prepend"] = r.choice(["▁", "ab", " ", "é"])
        if kind == "Replace":
            step.update(pattern=self.pattern(), content=r.choice(["", "▁", "ab", " ", "é1", "$1"]))
        return step

    def pre_tokenizer(self):
        r = self.random
        kind = r.choice(
            "Split Split Digits Metaspace Punctuation Whitespace WhitespaceSplit"
            " BertPreTokenizer".split()
        )
        behavior = r.choice(
            ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
        )
        if kind == "Split":
            step = split("", behavior, invert=bool(r.randrange(2)))
            step["pattern"] = self.pattern()
            return step
        if kind == "Digits":
            return {"type": kind, "individual_digits": bool(r.randrange(2))}
        if kind == "Punctuation":
            return {"type": kind, "behavior": behavior}
        if kind == "Metaspace":
            return self.metaspace()
        return {"type": kind}

    def metaspace(self):
        r = self.random
        return {
            "type": "Metaspace",
            "replacement": r.choice(["▁", "_"]),
            "prepend_scheme": r.choice(["always", "first", "never"]),
            "split": bool(r.randrange(2)),
        }

    def decoder(self):
        r = self.random
        kind = r.choice("ByteLevel ByteFallback Fuse Metaspace Replace Strip".split())
        if kind == "Metaspace":
            return self.metaspace()
        if kind == "Replace":
            content = r.choice(["", " ", "ab"])
            return {"type": kind, "pattern": self.pattern(), "content": content}
        if kind == "Strip":
            # Not at the end: the reference panics on tokens that are too short.
            return {"type": kind, "content": r.choice(" a▁"), "start": r.randrange(3), "stop": 0}
        if kind == "ByteLevel":
            return byte_level()
        return {"type": kind}

    def model(self, is_byte_level):
        r = self.random
        affixes = r.randrange(4) == 0
        prefix = r.choice(["##", "_"]) if affixes and r.randrange(2) else ""
        suffix = "</w>" if affixes and r.randrange(2) else ""
        alphabet = LETTERS
        if is_byte_level:
            visible = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
            alphabet = [chr(b) for b in visible]
            alphabet += [chr(256 + i) for i in range(256 - len(visible))]
        tokens = {"<unk>": 0, "<s>": 1, "</s>": 2}
        # Not with affixes: the reference's offsets of their bytes lie outside of the text.
        byte_fallback = not is_byte_level and not prefix + suffix and r.randrange(2) == 0
        if byte_fallback:
            for byte in range(256):
                if r.randrange(40) or r.randrange(2):
                    tokens[f"<0x{byte:02X}>"] = len(tokens)
        for letter in alphabet:
            if not is_byte_level and r.randrange(8) == 0:
                continue
            for text in {letter, prefix + letter, letter + suffix, prefix + letter + suffix}:
                tokens.setdefault(text, len(tokens))
        merges = []
        for _ in range(r.randrange(60)):
            plain = [t for t in tokens if not t.startswith("<")]
            left = r.choice([t for t in plain if not (suffix and t.endswith(suffix))])
            right = r.choice([t for t in plain if t.startswith(prefix)])
            joined = left + right[len(prefix) :]
            if len(joined) > 12 or " " in left + right or not right[len(prefix) :]:
                continue
            tokens.setdefault(joined, len(tokens))
            merges.append([left, right])
        if self.random.randrange(2):
            merges = [" ".join(m) for m in merges]
        return {
            "type": "BPE",
            "dropout": None,
            "unk_token": self.maybe("<unk>"),
            "continuing_subword_prefix": prefix or None,
            "end_of_word_suffix": suffix or None,
            "fuse_unk": bool(r.randrange(2)),
            "byte_fallback": byte_fallback,
            "ignore_merges": r.randrange(4) == 0,
            "vocab": tokens,
            "merges": merges,
        }

    def post_processor(self, is_byte_level):
        r = self.random
        frame = {"sep": ["</s>", 2], "cls": ["<s>", 1]}
        return r.choice(
            [
                template("<s>", 1),
                byte_level(add_prefix_space=bool(r.randrange(2))),
                {"type": "BertProcessing", **frame},
                {
                    "type": "RobertaProcessing",
                    **frame,
                    "trim_offsets": True,
                    "add_prefix_space": bool(r.randrange(2)),
                },
                {
                    "type": "Sequence",
                    "processors": [byte_level(add_prefix_space=True), template("</s>", 2)],
                },
            ]
        )

    def added(self, count):
        r = self.random
        tokens = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
        for content in ["<think>", "Word", " ab", "<|endoftext|>", "éa"][: r.randrange(6)]:
            flags = {
                name: r.randrange(4) == 0
                for name in ("single_word", "lstrip", "rstrip", "normalized")
            }
            tokens.append(added(count, content, special=bool(r.randrange(2)), **flags))
            count += 1
        return tokens

    def file(self):
        is_byte_level = bool(self.random.randrange(2))
        model = self.model(is_byte_level)
        pre = self.some(self.pre_tokenizer)
        if is_byte_level:
            use_regex, add_space = bool(self.random.randrange(2)), bool(self.random.randrange(2))
            pre = self.maybe(pre, []) + [byte_level(use_regex, add_space)]
        normalizers = {"type": "Sequence", "normalizers": self.some(self.normalizer, 4)}
        decoders = {"type": "Sequence", "decoders": self.some(self.decoder, 4)}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self.added(len(model["vocab"])),
            "normalizer": self.maybe(normalizers),
            "pre_tokenizer": (
                {"type": "Sequence", "pretokenizers": pre}
                if is_byte_level
                else self.maybe({"type": "Sequence", "pretokenizers": pre})
            ),
            "post_processor": self.maybe(self.post_processor(is_byte_level)),
            "decoder": self.maybe(decoders),
            "model": model,
        }
