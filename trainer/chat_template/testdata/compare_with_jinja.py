"""Renders random templates here and with Jinja2 as transformers sets it up, and counts differences.

    bazel build //trainer/chat_template/testing:render_lines
    python3 trainer/chat_template/testdata/compare_with_jinja.py \
        bazel-bin/trainer/chat_template/testing/render_lines 20000 1

    python3 trainer/chat_template/testdata/compare_with_jinja.py --write 400 7

Left out is what we do not follow: escape gives plain text, not Markup, which differs where it is
printed within a list or added to; a slice of a constant that has none is an error here, and
undefined where Jinja folds constants.

Arguments: the program, how many templates, the seed. Both failing counts as agreement; so does an
int of more than 64 bits, which we refuse, and which is counted. --write writes random_goldens.json.
"""

import json
import subprocess
import sys

import make_goldens
import random_templates


def theirs_of(source):
    """What Jinja2 makes of it: a text or an exception."""
    try:
        text = make_goldens.chat._cached_compile_jinja_template(source).render(
            **random_templates.VARIABLES
        )
        text.encode()
        return text
    except Exception as error:
        return error


def has_address(text):
    """Whether it shows where an object lies, which is another place each time."""
    return " at 0x" in text.lower()


def write(count, seed):
    """random_goldens.json: texts of templates of moderate size, and some refusals."""
    generator = random_templates.Generator(seed)
    renders = []
    while len(renders) < count:
        source = generator.template()
        theirs = theirs_of(source)
        refused = isinstance(theirs, Exception)
        if (
            len(source) > 400
            or (refused and len(renders) % 5)
            or (not refused and (len(theirs) > 600 or has_address(theirs)))
        ):
            continue
        renders.append({"template": source, "text": None if refused else theirs})
    goldens = {"variables": random_templates.VARIABLES, "renders": renders}
    path = make_goldens.HERE / "random_goldens.json"
    path.write_text(json.dumps(goldens, ensure_ascii=False, indent=0) + "\n")


def main():
    if sys.argv[1] == "--write":
        write(int(sys.argv[2]), int(sys.argv[3]))
        return
    program, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ours = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    generator = random_templates.Generator(seed)
    same = refused = integers = different = 0
    for _ in range(count):
        source = generator.template()
        theirs = theirs_of(source)
        ours.stdin.write(
            json.dumps({"template": source, "variables": random_templates.VARIABLES}) + "\n"
        )
        ours.stdin.flush()
        result = json.loads(ours.stdout.readline())
        if isinstance(theirs, Exception):
            if not result["ok"]:
                refused += 1
                continue
        elif result["ok"] and (result["text"] == theirs or has_address(theirs)):
            same += 1
            continue
        elif "64 bits" in result.get("error", ""):
            integers += 1
            continue
        different += 1
        if different <= 20:
            print("----", repr(source))
            print("jinja:", repr(theirs))
            print("ours: ", result)
    print(
        f"seed {seed}: {count} templates, {same} the same text, {refused} refused by both, "
        f"{integers} with larger integers, {different} different"
    )
    sys.exit(different != 0)


if __name__ == "__main__":
    main()
