"""Writes goldens.json: the templates of templates/ rendered over many conversations by Jinja2,
set up as transformers sets it up.

    python3 testdata/make_goldens.py    (in trainer/chat_template; needs transformers and jinja2)

The templates are those that the models' publishers ship in tokenizer_config.json or
chat_template.jinja, written down here as facts of their formats: Qwen2.5 and Qwen3 (Alibaba Cloud,
Apache-2.0), Llama 3 and 3.1 (Meta), Mistral 7B v0.3 (Mistral AI, Apache-2.0), Zephyr and SmolLM2
(Hugging Face, Apache-2.0), Gemma (Google), ChatML (OpenAI). chatml_generation and tool_macros are
our own.
"""

import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as chat

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 12, 1, 3, 4, 5)


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat.datetime = FixedDatetime

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": (
                "Weather of a place.\nCelsius \u2014 \u201cor\u201d <Fahrenheit> & more."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "K\u00f6ln, \u6771\u4eac"},
                    "days": {"type": "integer", "minimum": 1},
                    "units": {"type": ["string", "number"], "enum": ["C", "F"]},
                },
                "required": ["place"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "plot",
            "description": "Plots.",
            "parameters": {
                "type": "object",
                "properties": {
                    "points": {"type": "array", "items": {"type": "number"}},
                    "style": {"type": "object", "additionalProperties": {"type": "boolean"}},
                },
            },
        },
    },
]


def call(name, arguments, identifier="abcdef123"):
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


CONVERSATIONS = {
    "one_question": {"messages": [("user", "What is 2 + 2?")]},
    "answer": {"messages": [("user", "Hi"), ("assistant", "Hello! How can I help?")]},
    "system": {"messages": [("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?")]},
    "several_turns": {
        "messages": [
            ("system", "You are a pirate.\n"),
            ("user", "  Where is the treasure? "),
            ("assistant", "\nArr.\n\n"),
            ("user", "And now?"),
            ("assistant", "Still arr."),
            ("user", "Bye"),
        ]
    },
    "unicode": {
        "messages": [
            (
                "user",
                (
                    "Gr\u00fc\u00dfe \U0001f600 \u65e5\u672c\u8a9e \u00a0\u2003"
                    " \u0645\u0631\u062d\u0628\u0627"
                ),
            ),
            (
                "assistant",
                (
                    "e\u0301 \ud55c\uad6d \U0001f468\u200d\U0001f469\u200d\U0001f467 <|im_end|>"
                    " '\"\\ {{ x }}"
                ),
            ),
        ]
    },
    "empty_contents": {"messages": [("user", ""), ("assistant", ""), ("user", " \n\t")]},
    "line_ends": {"messages": [("user", "a\r\nb\rc\n"), ("assistant", "\tcode:\n    x = 1\n")]},
    "thinking": {
        "messages": [
            ("user", "1+1?"),
            ("assistant", "<think>\nOne and one.\n</think>\n\n2"),
            ("user", "2+2?"),
            ("assistant", "<think>\n\nTwo.\n</think>\n4"),
        ]
    },
    "reasoning_field": {
        "messages": [
            ("user", "1+1?"),
            {"role": "assistant", "content": "2", "reasoning_content": "\nEasy.\n"},
        ]
    },
    "no_thinking": {"messages": [("user", "1+1?")], "enable_thinking": False},
    "tools": {"messages": [("system", "Use tools."), ("user", "Weather?")], "tools": TOOLS},
    "tool_calls": {
        "messages": [
            ("user", "Weather in K\u00f6ln?"),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    call(
                        "get_weather", {"place": "K\u00f6ln", "days": 3, "x": [1.5, None, True, {}]}
                    )
                ],
            },
            {
                "role": "tool",
                "content": '{"t": 7.0}',
                "name": "get_weather",
                "tool_call_id": "abcdef123",
            },
            ("assistant", "7 degrees."),
            ("user", "Thanks"),
        ],
        "tools": TOOLS,
    },
    "two_tool_calls": {
        "messages": [
            ("user", "Both"),
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    call("get_weather", {"place": "A<b>&'"}),
                    call("plot", {"points": [1, 2.5e-7, 1e16], "style": {}}, "zzzzzz999"),
                ],
            },
            {"role": "tool", "content": "sunny", "tool_call_id": "abcdef123"},
            {"role": "tool", "content": "done", "tool_call_id": "zzzzzz999"},
            ("assistant", "<think>\nok\n</think>\n\nBoth done."),
        ],
        "tools": TOOLS,
    },
    "no_user": {"messages": [("system", "Alone.")]},
    "wrong_order": {"messages": [("assistant", "First"), ("user", "Second")]},
    "content_parts": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image"},
                    {"type": "text", "text": " What is this? "},
                ],
            },
            ("assistant", "A cat."),
        ]
    },
    "date": {"messages": [("user", "Hi")], "date_string": "01 Jan 2025"},
    "builtin_tools": {
        "messages": [
            ("user", "Search"),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call("brave_search", {"query": "x", "lang": "de"})],
            },
        ],
        "builtin_tools": ["brave_search", "code_interpreter"],
    },
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def messages_of(conversation):
    return [
        m if isinstance(m, dict) else {"role": m[0], "content": m[1]}
        for m in conversation["messages"]
    ]


def render(source, conversation, add_generation_prompt):
    arguments = {k: v for k, v in conversation.items() if k != "messages"}
    arguments |= TOKENS
    try:
        rendered, spans = chat.render_jinja_template(
            [messages_of(conversation)],
            chat_template=source,
            add_generation_prompt=add_generation_prompt,
            return_assistant_tokens_mask="{%- generation" in source,
            **arguments,
        )
    except Exception:
        return None
    result = {"text": rendered[0]}
    if "{%- generation" in source:
        text = rendered[0]
        result["spans"] = [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans[0]]
    return result


def main():
    renders = {}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text()
        # Editors end files with a newline; the published ones end without.
        source = source.removesuffix("\n")
        for name, conversation in CONVERSATIONS.items():
            for prompt in (False, True):
                renders[f"{path.stem}/{name}/{int(prompt)}"] = render(source, conversation, prompt)
    conversations = {name: {**c, "messages": messages_of(c)} for name, c in CONVERSATIONS.items()}
    goldens = {"tokens": TOKENS, "conversations": conversations, "renders": renders}
    text = json.dumps(goldens, ensure_ascii=False, indent=0)
    (HERE / "goldens.json").write_text(text + "\n")
    made = sum(r is not None for r in renders.values())
    print(f"{len(renders)} renders, {made} of them texts, {len(renders) - made} refused")


if __name__ == "__main__":
    main()
