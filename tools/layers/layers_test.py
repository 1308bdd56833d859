"""Tests of the layer check: a small clean tree, and for each rule one edit that breaks it.

Each case builds the tree in a temporary folder, applies its edit and runs the whole check, so a
rule that stops firing, or fires on the clean tree, fails here.
"""

import importlib.util
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import model
import structure
import tidy
import tree

_spec = importlib.util.spec_from_file_location("layers_main", os.path.join(HERE, "__main__.py"))
layers_main = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(layers_main)

LAYERS = """
base:
chunk: base
policy: base chunk:ids
engine: chunk policy
engine/comm: base
tests: all
"""


def header(path, body=""):
    guard = "GANTRY_" + path.upper().replace("/", "_").replace(".", "_") + "_"
    return f"// Purpose.\n#ifndef {guard}\n#define {guard}\n{body}\n#endif  // {guard}\n"


CLEAN = {
    "LAYERS": LAYERS,
    "base/BUILD.bazel": 'package(default_visibility = ["//:users_of_base"])\n'
                        'gantry_cc_library(name = "log", srcs = ["log.cc"], hdrs = ["log.h"])\n',
    "base/log.h": header("base/log.h"),
    "base/log.cc": '#include "base/log.h"\n\n#include <cstdio>\n\nvoid F() { std::puts("x"); }\n',
    "chunk/BUILD.bazel":
        'package(default_visibility = ["//:users_of_chunk"])\n'
        'gantry_cc_library(name = "ids", hdrs = ["ids.h"],\n'
        '    visibility = ["//:users_of_chunk_ids"])\n'
        'gantry_cc_library(name = "chunk", hdrs = ["chunk.h"], deps = [":ids", "//base:log"])\n'
        'gantry_cc_test(name = "chunk_test", size = "small", deps = [":chunk"])\n',
    "chunk/ids.h": header("chunk/ids.h"),
    "chunk/chunk.h": header("chunk/chunk.h", '#include "base/log.h"\n#include "chunk/ids.h"\n'),
    "chunk/chunk_test.cc": '#include "chunk/chunk.h"\n#include "gtest/gtest.h"\n',
    "policy/BUILD.bazel":
        'gantry_cc_library(name = "plan", srcs = ["plan.cc"], deps = ["//chunk:ids"])\n',
    "policy/plan.cc": '#include "chunk/ids.h"\n// printf("in a comment");\nint x = 1;\n',
    "engine/BUILD.bazel":
        'gantry_cc_library(name = "engine", srcs = ["engine.cc"], deps = ["//chunk"])\n',
    "engine/engine.cc": '#include "chunk/chunk.h"\n',
    "engine/comm/BUILD.bazel":
        'gantry_cc_library(name = "comm", srcs = ["comm.cc"], deps = ["//base:log"])\n',
    "engine/comm/comm.cc": '#include "base/log.h"\n',
    "README.md": "# Title\n\n```\n# not a title\n```\n",
}


class TreeTest(unittest.TestCase):
    """Builds trees and checks them."""

    def check(self, edits=None, write=True):
        """Problems of the clean tree with some files replaced, or removed when None."""
        files = dict(CLEAN, **(edits or {}))
        with tempfile.TemporaryDirectory() as root:
            files.setdefault("BUILD.bazel", "")
            for path, text in files.items():
                if text is None:
                    continue
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return layers_main.check(root, write)

    def assert_problem(self, edits, *parts):
        """Exactly one problem, whose text holds all parts."""
        problems = self.check(edits)
        self.assertEqual(len(problems), 1, problems)
        for part in parts:
            self.assertIn(part, problems[0])

    def append(self, path, text):
        return {path: CLEAN[path] + text}


class LayersTest(TreeTest):
    """The graph, and the tree against it."""

    def test_the_clean_tree_has_no_problem(self):
        self.assertEqual(self.check(), [])

    def test_the_graph(self):
        layers = model.Layers(LAYERS)
        self.assertTrue(layers.may_use("engine", "base"), "closure")
        self.assertTrue(layers.may_use("policy", "chunk", "ids"))
        self.assertFalse(layers.may_use("policy", "chunk", "chunk"))
        self.assertFalse(layers.may_use("policy", "chunk"))
        self.assertFalse(layers.may_use("chunk", "policy"))
        self.assertTrue(layers.may_use("tests", "engine"))
        self.assertFalse(layers.may_use("engine", "tests"))
        self.assertEqual(layers.layer_of("engine/comm/x"), "engine/comm")
        self.assertEqual(layers.layer_of("engine/zero"), "engine")
        self.assertIsNone(layers.layer_of("tools"))
        # engine may use chunk; engine/comm, inside its folder, may not.
        self.assertIn("-//engine/comm/...", layers.groups()["users_of_chunk"])

    def test_a_part_brings_nothing_else_with_it(self):
        layers = model.Layers("base:\nlow:\nchunk: low\npolicy: chunk:ids\n")
        self.assertFalse(layers.may_use("policy", "low"))

    def test_cycle(self):
        with self.assertRaisesRegex(model.LayersError, "cycle a -> b -> a"):
            model.Layers("a: b\nb: a\n")
        with self.assertRaisesRegex(model.LayersError, "cycle"):
            model.Layers("a: b:part\nb: a\n")
        self.assert_problem({"LAYERS": LAYERS.replace("base:", "base: engine")}, "cycle")

    def test_bad_lines_in_layers(self):
        for text, message in (("a b\n", "expected"), ("a:\na:\n", "twice"), ("a: b\n", "unknown")):
            with self.assertRaisesRegex(model.LayersError, message):
                model.Layers(text)

    def test_include_upwards(self):
        edit = self.append("base/log.cc", '#include "chunk/chunk.h"\n')
        self.assert_problem(edit, "base/log.cc:6", "base may not use chunk")

    def test_include_beyond_the_one_header_allowed(self):
        edit = self.append("policy/plan.cc", '#include "chunk/chunk.h"\n')
        self.assert_problem(edit, "policy may not use chunk (chunk/chunk.h)")

    def test_include_of_a_sibling_inside_a_folder(self):
        edit = self.append("engine/comm/comm.cc", '#include "chunk/chunk.h"\n')
        self.assert_problem(edit, "engine/comm may not use chunk")

    def test_include_in_a_test_counts_too(self):
        edit = self.append("chunk/chunk_test.cc", '#include "engine/engine.h"\n')
        edit["engine/engine.h"] = header("engine/engine.h")
        edit["engine/BUILD.bazel"] = CLEAN["engine/BUILD.bazel"].replace(
            "srcs", 'hdrs = ["engine.h"], srcs')
        self.assert_problem(edit, "chunk may not use engine")

    def test_include_not_from_the_root(self):
        edit = self.append("chunk/chunk_test.cc", '#include "ids.h"\n')
        self.assert_problem(edit, "no file ids.h")

    def test_build_dependency_upwards(self):
        edit = {"base/BUILD.bazel": CLEAN["base/BUILD.bazel"].replace(
            "srcs", 'deps = ["//chunk:ids"], srcs')}
        self.assert_problem(edit, "base/BUILD.bazel:2", "base may not use chunk (//chunk:ids)")

    def test_build_dependency_hidden_in_a_select(self):
        edit = {"base/BUILD.bazel": CLEAN["base/BUILD.bazel"].replace(
            "srcs", 'deps = if_cuda(["//engine"]) + select({"//chunk:flag": []}),\n    srcs')}
        self.assert_problem(edit, "base may not use engine (//engine)")

    def test_build_dependency_beyond_the_one_target_allowed(self):
        edit = {"policy/BUILD.bazel": CLEAN["policy/BUILD.bazel"].replace(
            "//chunk:ids", "//chunk:chunk")}
        self.assert_problem(edit, "policy may not use chunk (//chunk:chunk)")

    def test_build_file_that_cannot_be_read(self):
        problems = self.check(self.append("engine/BUILD.bazel", "gantry(\n"))
        self.assertIn("cannot be parsed", problems[0])

    def test_visibility_wider_than_the_group(self):
        for wide in ("//visibility:public", "//:users_of_base", "//engine:__pkg__"):
            edit = {"chunk/BUILD.bazel": CLEAN["chunk/BUILD.bazel"].replace(
                '"//:users_of_chunk"', f'"{wide}"')}
            self.assert_problem(edit, wide, "wider than chunk's group")

    def test_visibility_of_the_one_target_is_for_it_alone(self):
        edit = {"chunk/BUILD.bazel": CLEAN["chunk/BUILD.bazel"].replace(
            'hdrs = ["chunk.h"],',
            'hdrs = ["chunk.h"],\n    visibility = ["//:users_of_chunk_ids"],')}
        self.assert_problem(edit, "//:users_of_chunk_ids")

    def test_visibility_narrower_is_fine(self):
        edit = {"chunk/BUILD.bazel": CLEAN["chunk/BUILD.bazel"].replace(
            '"//:users_of_chunk"', '"//:users_of_engine", "//chunk:__subpackages__"')}
        self.assertEqual(self.check(edit), [])

    def test_package_groups_that_differ(self):
        good = model.Layers(LAYERS).groups_text()
        bad = good.replace('        "//chunk/...",\n', "", 1)
        self.assertNotEqual(good, bad)
        self.assertEqual(self.check({"BUILD.bazel": good}, write=False), [])
        self.assertIn("differ from LAYERS", self.check({"BUILD.bazel": bad}, write=False)[0])
        self.assertIn("missing", self.check(write=False)[0])
        extra = good + '\npackage_group(name = "friends", packages = [])\n'
        self.assertIn("outside the generated", self.check({"BUILD.bazel": extra}, write=False)[0])

    def test_write_keeps_the_rest_of_the_file(self):
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "BUILD.bazel")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"before\n{model.GROUPS_BEGIN}\nold\n{model.GROUPS_END}\nafter\n")
            structure.write_groups(root, model.Layers(LAYERS))
            text = tree.read(root, "BUILD.bazel")
            self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
            self.assertNotIn("old", text)

    def test_stray_files(self):
        self.assert_problem({"base/extra.h": header("base/extra.h")}, "lies in no BUILD target")
        self.assert_problem({"loose/a.cc": "int a;\n"}, "lies in no layer")
        self.assertEqual(self.check({"third_party/a.cc": "int a;\n"}), [])


class TidyTest(TreeTest):
    """Each rule fires where it should and is silent where code is allowed."""

    def test_bans(self):
        cases = {
            "printing": ['printf("x");', 'std::fprintf(stderr, "x");', "std::cout << 1;",
                         'std::fputs("a", stderr);'],
            "thread": ["std::thread t(F);", "auto f = std::async(F);"],
            "sleep": ["std::this_thread::sleep_for(d);", "usleep(3);"],
            "random": ["int x = rand();", "std::random_device d;"],
            "mutex": ["absl::Mutex m;", '#include "absl/synchronization/mutex.h"'],
            "std mutex": ["std::mutex m;", "std::lock_guard l(m);", "std::condition_variable c;"],
            "absl twin": ["void F(absl::string_view s);", "absl::optional<int> x;"],
            "throw": ["throw std::runtime_error(s);"],
            "exit": ["exit(1);", "std::abort();"],
            "TBB": ["tbb::parallel_for(a, b, f);", "#include <tbb/parallel_for.h>"],
            "PCRE2": ["pcre2_code_free_8(code);", "#include <pcre2.h>"],
            "utf8proc": ["utf8proc_tolower(c);", "#include <utf8proc.h>"],
            "liburing": ["io_uring_submit(&ring);", "#include <liburing.h>"],
            "oneDNN": ["dnnl::engine e;", "#include <oneapi/dnnl/dnnl.hpp>"],
            "Highway": ["hwy::N_AVX2::F();", '#include "hwy/highway.h"'],
            "CUDA": ["cudaMalloc(&p, n);", "#include <cuda_runtime_api.h>"],
            "NCCL": ["ncclAllReduce(a);", "#include <nccl.h>"],
        }
        self.assertEqual(set(cases), {ban.name for ban in tidy.BANS})
        for name, snippets in cases.items():
            for snippet in snippets:
                with self.subTest(snippet):
                    self.assert_problem(self.append("engine/engine.cc", snippet + "\n"),
                                        "engine/engine.cc:2", f" {name}: ")

    def test_bans_do_not_fire_on_other_code(self):
        for snippet in ('Log("printf(x)");', "snprintf(b, n);",
                        "std::fputs(text, file);", "std::thread::id id;", "x.exit(1);",
                        "/* tbb:: */ int y;", "operand(1);", 'R"(throw 1)";',
                        "int a = 1'000; // rand()",
                        "std::thread t(F);  // thread: the lane that owns this ring"):
            with self.subTest(snippet):
                self.assertEqual(self.check(self.append("engine/engine.cc", snippet + "\n")), [])

    def test_where_code_may_stand(self):
        for path, snippet in (("base/log.cc", "tbb::F();"), ("base/log.cc", "std::thread t;"),
                              ("chunk/chunk_test.cc", "std::thread t(F);")):
            self.assertEqual(self.check(self.append(path, snippet + "\n")), [])
        self.assertEqual(len(self.check(self.append("chunk/chunk_test.cc", "std::mutex m;\n"))), 1)

    def test_columns(self):
        self.assertEqual(self.check(self.append("engine/engine.cc", "//" + "x" * 98 + "\n")), [])
        self.assert_problem(self.append("engine/engine.cc", "//" + "x" * 99 + "\n"), "101 columns")
        self.assertEqual(self.check(self.append("engine/engine.cc", "//" + "é" * 98 + "\n")), [])

    def test_marks_of_unfinished_work(self):
        for mark in ("TODO", "FIXME", "XXX"):
            self.assert_problem(self.append("engine/engine.cc", f"// {mark}: later\n"), "finish it")

    def test_guard(self):
        edit = {"chunk/ids.h": CLEAN["chunk/ids.h"].replace("GANTRY_CHUNK_IDS", "IDS")}
        self.assert_problem(edit, "include guard must be GANTRY_CHUNK_IDS_H_")

    def test_sizes(self):
        for path, limit in (("chunk/ids.h", 250), ("engine/engine.cc", 500),
                            ("chunk/chunk_test.cc", 800)):
            room = limit - CLEAN[path].count("\n")
            with self.subTest(path):
                self.assertEqual(self.check(self.append(path, "\n" * room)), [])
                self.assert_problem(self.append(path, "\n" * (room + 1)), f"at most {limit}")

    def test_ratchet(self):
        def edit(lines, entry):
            room = lines - CLEAN["engine/engine.cc"].count("\n")
            return dict(self.append("engine/engine.cc", "\n" * room),
                        **{tidy.RATCHET: f"# why\nengine/engine.cc {entry}\n"})
        self.assertEqual(self.check(edit(600, 600)), [])
        self.assert_problem(edit(601, 600), "601 lines, 600 by")
        self.assert_problem(edit(599, 600), "lower its entry")
        self.assert_problem(edit(500, 600), "remove it")
        self.assert_problem({tidy.RATCHET: "gone.cc 900\n"}, "does not exist")

    def test_documents(self):
        self.assert_problem({"README.md": "# A\n\n# B\n"}, "one `# Title`")
        self.assert_problem({"README.md": "text\n"}, "one `# Title`")
        self.assert_problem({"base/README.md": "# A\n" + "x\n" * 40}, "at most 40")
        self.assertEqual(self.check({"docs.md": "# A\n" + "x\n" * 99}), [])


if __name__ == "__main__":
    unittest.main()
