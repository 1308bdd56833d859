"""Random templates, for compare_with_jinja.py: mostly valid, and of all that templates use."""

import random

VARIABLES = {
    "messages": [
        {"role": "system", "content": " You are\n"},
        {"role": "user", "content": "Hi <b> & 'you' \u00e9\u00df\u01c5 \U0001f600", "n": 3},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "f", "arguments": {"x": 1.5, "y": None}}],
        },
        {"role": "user", "content": "ABC abc 123", "n": 3, "flag": True},
    ],
    "tools": None,
    "words": ["beta", "Alpha", "gamma", "alpha", ""],
    "numbers": [3, 1, 2, 2.5, -7, 0, True],
    "nested": {"a": {"b": [1, [2, "x"], {"c": "d"}]}, "items": 5, "k 2": "v", "1": "one"},
    "text": "  The quick\tbrown fox\n jumps over the lazy d\u00f6g.\n\n",
    "empty": "",
    "empty_list": [],
    "yes": True,
    "no": False,
    "n": 7,
    "f": 0.1,
    "big": 123456789012,
    "nothing": None,
    "add_generation_prompt": True,
    "greek": "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u0130stanbul",
}
STRINGS = [
    "a",
    "",
    " ",
    "x,y,z",
    "\\n",
    "Hello World",
    "\u00e4\u00d6\u00fc",
    "%s-%d",
    "{} {0}",
    "the",
    "o",
    "<think>",
    "\\t ",
    "it's",
    "12",
    " 42 ",
    "3.7",
    "0x1f",
    "e",
    "A",
]
STRING_METHODS = [
    ("strip", 0, 1),
    ("lstrip", 0, 1),
    ("rstrip", 0, 1),
    ("upper", 0, 0),
    ("lower", 0, 0),
    ("title", 0, 0),
    ("capitalize", 0, 0),
    ("swapcase", 0, 0),
    ("split", 0, 1),
    ("rsplit", 0, 1),
    ("splitlines", 0, 0),
    ("startswith", 1, 1),
    ("endswith", 1, 1),
    ("replace", 2, 2),
    ("find", 1, 1),
    ("rfind", 1, 1),
    ("index", 1, 1),
    ("count", 1, 1),
    ("isdigit", 0, 0),
    ("isalpha", 0, 0),
    ("islower", 0, 0),
    ("isupper", 0, 0),
    ("isspace", 0, 0),
    ("partition", 1, 1),
    ("rpartition", 1, 1),
    ("removeprefix", 1, 1),
    ("removesuffix", 1, 1),
    ("format", 0, 2),
    ("isascii", 0, 0),
]
PLAIN_FILTERS = """
trim upper lower title capitalize length count list first last reverse sort unique
string int float abs round tojson join sum min max items dictsort default indent
""".split()
TESTS = """
defined undefined none string mapping iterable sequence number integer float boolean
true false odd even lower upper callable
""".split()
BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "~",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "and",
    "or",
]


MAPS = ["attribute='role'", "'upper'", "'length'", "attribute='n', default=0", "'tojson'"]
MAP_ENDS = ["list", "join(',')", "first", "length", "list|tojson"]
ATTRIBUTE_TESTS = ["'equalto', 'user'", "'defined'", "'in', ['user']"]
SELECT_ENDS = ["list", "list|length", "first", "map(attribute='content')|join"]
SELECT_TESTS = ["", "'string'", "'odd'", "'gt', 1", "'none'"]
ATTRIBUTES = ["role", "content", "a", "items", "n", "keys", "x", "0", "tool_calls"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = list(VARIABLES)
        self.locals = []

    def pick(self, items):
        return self.r.choice(items)

    def string(self):
        text = self.pick(STRINGS)
        return '"' + text + '"' if "'" in text or self.r.random() < 0.3 else "'" + text + "'"

    def name(self):
        pool = self.names + self.locals * 3 + ["missing"]
        return self.pick(pool)

    def atom(self):
        k = self.r.random()
        if k < 0.45:
            return self.name()
        if k < 0.65:
            return self.string()
        if k < 0.8:
            return str(self.pick([0, 1, 2, 3, -1, 10, 100]))
        if k < 0.86:
            return self.pick(["1.5", "0.25", "1e3", "2.0", "1e-7", "1e16", "123456.789"])
        return self.pick(
            [
                "true",
                "false",
                "none",
                "True",
                "None",
                "[]",
                "{}",
                "()",
                "(1,)",
                "[1, 'a']",
                "{'k': 1}",
                "range(3)",
                "range(5, 0, -2)",
            ]
        )

    def sequence(self):
        return self.pick(
            [
                "messages",
                "words",
                "numbers",
                "text",
                "nested",
                "empty_list",
                "[3, 1, 2]",
                "'hey'",
                "range(4)",
                "nested.items()",
                "messages[1:]",
                "missing",
                "greek",
            ]
        )

    def filtered(self, depth):
        k = self.r.random()
        if k < 0.5:
            return f"{self.expr(depth)}|{self.pick(PLAIN_FILTERS)}"
        if k < 0.6:
            return f"{self.sequence()}|map({self.pick(MAPS)})|{self.pick(MAP_ENDS)}"
        if k < 0.7:
            name = self.pick(["selectattr", "rejectattr"])
            test = self.pick(ATTRIBUTE_TESTS)
            return f"{self.sequence()}|{name}('role', {test})|{self.pick(SELECT_ENDS)}"
        if k < 0.76:
            name = self.pick(["select", "reject"])
            return f"{self.sequence()}|{name}({self.pick(SELECT_TESTS)})|list"
        options = [
            f"join({self.string()})",
            f"default({self.atom()}, true)",
            f"replace({self.string()}, {self.string()})",
            f"tojson(indent={self.pick([0, 2, 4])})",
            "tojson(separators=(',', ':'))",
            "tojson(sort_keys=true)",
            "tojson(ensure_ascii=true)",
            f"round({self.pick([0, 1, 2])})",
            f"round(1, '{self.pick(['ceil', 'floor'])}')",
            f"indent({self.pick([2, 4])}, {self.pick(['true', 'false'])})",
            f"trim({self.string()})",
            "sort(reverse=true)",
            "sort(case_sensitive=true)",
            f"sort(attribute='{self.pick(['role', 'content', 'role,content'])}')",
            "dictsort(false, 'value')",
            "dictsort(reverse=true)",
            f"batch({self.pick([1, 2, 3])}, 0)|list",
            f"slice({self.pick([1, 2, 3])})|list",
            f"int({self.atom()})",
            "int(0, 16)",
            f"float({self.atom()})",
            f"truncate({self.pick([5, 10])}, {self.pick(['true', 'false'])}, '..', 0)",
            "unique(true)|list",
            f"format({self.atom()}, {self.atom()})",
            "unique(attribute='role')|list|length",
            "sum(attribute='n')",
            "attr('role')",
            "center(20)",
        ]
        return f"{self.expr(depth)}|{self.pick(options)}"

    def access(self, depth):
        base = self.pick(
            [
                self.name(),
                "messages",
                "messages[%d]" % self.r.randint(-5, 5),
                "nested.a.b",
                "words",
                "text",
                self.expr(depth),
            ]
        )
        k = self.r.random()
        if k < 0.35:
            return f"{base}.{self.pick(ATTRIBUTES)}"
        if k < 0.55:
            key = self.pick([self.expr(depth), str(self.r.randint(-4, 4)), self.string()])
            return f"{base}[{key}]"
        if k < 0.8:
            base = self.pick([self.name(), "messages", "nested.a.b", "words", "text"])
            part = lambda: self.pick(["", "", str(self.r.randint(-5, 5)), "none"])
            step = self.pick(["", ":" + self.pick(["-1", "2", "-2", "", "1"])])
            return f"{base}[{part()}:{part()}{step}]"
        calls = ["items()", "keys()", "values()", "index(2)", "count(2)", "copy()"]
        calls += [f"get({self.string()})", f"get({self.string()}, 1)"]
        return f"{base}.{self.pick(calls)}"

    def method(self, depth):
        name, low, high = self.pick(STRING_METHODS)
        args = ", ".join(
            self.string() if self.r.random() < 0.85 else self.expr(depth)
            for _ in range(self.r.randint(low, high))
        )
        base = self.pick(["text", "messages[1].content", "greek", self.string(), self.expr(depth)])
        return f"{base}.{name}({args})"

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        k = self.r.random()
        d = depth - 1
        if k < 0.15:
            return self.atom()
        if k < 0.35:
            return self.filtered(d)
        if k < 0.5:
            return self.access(d)
        if k < 0.6:
            return self.method(d)
        if k < 0.78:
            return (
                f"{self.pick(['', '(', 'not ', '-'])}{self.expr(d)} {self.pick(BINARY)}"
                f" {self.expr(d)}".replace("(", "(", 1)
                if self.r.random() < 0.5
                else f"({self.expr(d)} {self.pick(BINARY)} {self.expr(d)})"
            )
        if k < 0.86:
            test = self.pick(
                TESTS
                + [
                    "in [1, 'a']",
                    "divisibleby 2",
                    "equalto 'a'",
                    "eq(1)",
                    "gt 2",
                    "sameas none",
                    "ne 3",
                ]
            )
            return f"{self.expr(d)} is {self.pick(['', 'not '])}{test}"
        if k < 0.91:
            return f"({self.expr(d)} if {self.expr(d)}{self.pick(['', ' else ' + self.expr(d)])})"
        if k < 0.95:
            return "[" + ", ".join(self.expr(d) for _ in range(self.r.randint(0, 3))) + "]"
        if k < 0.98:
            return (
                "{"
                + ", ".join(f"{self.string()}: {self.expr(d)}" for _ in range(self.r.randint(0, 2)))
                + "}"
            )
        return f"dict(a={self.expr(d)})"

    def open(self, kind):
        ends = {"%": ("{%", "%}"), "{": ("{{", "}}"), "#": ("{#", "#}")}[kind]
        left = self.pick(["", "", "-", "-", "+"]) if kind != "{" else self.pick(["", "", "-"])
        right = self.pick(["", "", "-", "-", "+"]) if kind == "%" else self.pick(["", "", "-"])
        return ends[0] + left + " ", " " + right + ends[1]

    def tag(self, text, kind="%"):
        left, right = self.open(kind)
        return left + text + right

    def data(self):
        return self.pick(
            [
                "",
                "\n",
                "  ",
                "text ",
                "\n  ",
                " x\n\n",
                "<|im_start|>",
                "\t",
                "a\n    ",
                "{",
                "}",
                "%",
                "\u00e9 \n",
            ]
        )

    def body(self, depth, loop=False):
        return "".join(self.statement(depth, loop) for _ in range(self.r.randint(1, 3)))

    def statement(self, depth, loop):
        k = self.r.random()
        if depth <= 0 or k < 0.4:
            pick = self.r.random()
            if pick < 0.4:
                return self.data()
            if pick < 0.5 and loop:
                return self.tag(
                    "loop."
                    + self.pick(
                        [
                            "index",
                            "index0",
                            "first",
                            "last",
                            "length",
                            "revindex",
                            "revindex0",
                            "previtem",
                            "nextitem",
                            "depth",
                            "cycle('a', 'b')",
                            "changed(1)",
                        ]
                    ),
                    "{",
                )
            return self.tag(self.expr(2), "{") + self.data()
        d = depth - 1
        if k < 0.55:
            parts = [self.tag("if " + self.expr(2)), self.body(d, loop)]
            if self.r.random() < 0.3:
                parts += [self.tag("elif " + self.expr(2)), self.body(d, loop)]
            if self.r.random() < 0.4:
                parts += [self.tag("else"), self.body(d, loop)]
            return "".join(parts) + self.tag("endif")
        if k < 0.7:
            target = self.pick(["i", "i", "m", "a, b", "(a, b)"])
            test = self.pick(["", "", "", " if " + self.expr(1)])
            source = self.sequence() if self.r.random() < 0.8 else self.expr(1)
            before = list(self.locals)
            self.locals += ["i", "m"]
            inner = self.body(d, True)
            if self.r.random() < 0.2:
                inner += (
                    self.tag("if " + self.expr(1))
                    + self.tag(self.pick(["break", "continue"]))
                    + self.tag("endif")
                    + self.data()
                )
            text = self.tag(f"for {target} in {source}{test}") + inner
            if self.r.random() < 0.25:
                text += self.tag("else") + self.body(d, loop)
            self.locals = before
            return text + self.tag("endfor")
        if k < 0.82:
            name = self.pick(["v", "w", "ns", "content", "messages", "text", "n"])
            if name == "ns":
                # Not the namespace itself within lists: Python shortens those by identity.
                value = self.tag("set ns.s = " + self.expr(2)) if "ns" not in self.locals else ""
                self.locals += [name]
                return (
                    self.tag("set ns = namespace(c=0, s='')")
                    + self.tag("set ns.c = ns.c + 1")
                    + value
                    + self.tag("ns.c ~ ns.s", "{")
                )
            self.locals += [name]
            if self.r.random() < 0.2:
                return (
                    self.tag("set " + name + self.pick(["", " | upper", " | trim | length"]))
                    + self.body(d, False)
                    + self.tag("endset")
                )
            return self.tag(f"set {name} = {self.expr(2)}")
        if k < 0.88:
            before = list(self.locals)
            self.locals = before + ["p", "q"]
            inner = self.body(d, False)
            self.locals = before
            use = self.pick(
                ["mac(1)", "mac('z', q=2)", "mac()", "mac(q=" + self.atom() + ")", "mac(1, 2, 3)"]
            )
            return (
                self.tag("macro mac(p, q=" + self.expr(1) + ")")
                + inner
                + self.tag("endmacro")
                + self.tag(use, "{")
            )
        if k < 0.91:
            return (
                self.tag("macro cal(p)")
                + self.tag("caller(p)", "{")
                + self.data()
                + self.tag("endmacro")
                + self.tag("call(x) cal(" + self.atom() + ")")
                + self.tag("x", "{")
                + self.body(d, False)
                + self.tag("endcall")
            )
        if k < 0.94:
            return (
                self.tag(
                    "filter "
                    + self.pick(["upper", "trim", "indent(2)", "replace('e', 'E')", "title|length"])
                )
                + self.body(d, False)
                + self.tag("endfilter")
            )
        if k < 0.96:
            return (
                self.tag("with v=" + self.expr(1) + ", w = 3")
                + self.body(d, loop)
                + self.tag("endwith")
            )
        if k < 0.98:
            return self.tag(self.pick(["comment", "a\nb", "{{ x }}"]), "#")
        return self.tag("generation") + self.body(d, False) + self.tag("endgeneration")

    def template(self):
        self.locals = []
        if self.r.random() < 0.5:
            return "{{ " + self.expr(3) + " }}"
        return self.data() + self.body(3)
