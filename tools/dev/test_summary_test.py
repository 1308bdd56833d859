"""Tests of test_summary: what each kind of test result counts as."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import test_summary

_GTEST = """<?xml version="1.0"?>
<testsuites><testsuite name="A">
  <testcase name="Good" classname="A" status="run" result="completed"/>
  <testcase name="Bad" classname="A" status="run"><failure message="x"/></testcase>
  <testcase name="Left" classname="A" status="run" result="skipped">
    <skipped message="a_test.cc:3&#x0A;no io_uring here"/></testcase>
  <testcase name="Off" classname="A" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


class TestSummaryTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)

    def _result(self, label, status, xml=None, attempt=1):
        outputs = []
        if xml is not None:
            path = os.path.join(self._folder.name, f"{label.replace('/', '_')}{attempt}.xml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(xml)
            outputs.append({"name": "test.xml", "uri": "file://" + path})
        return json.dumps({
            "id": {"testResult": {"label": label, "attempt": attempt}},
            "testResult": {"status": status, "testActionOutput": outputs},
        })

    def _configured(self, label):
        return json.dumps({
            "id": {"targetConfigured": {"label": label}},
            "configured": {"targetKind": "cc_test rule"},
        })

    def test_counts_cases_and_names_the_reason_of_a_skip(self):
        counts, final = test_summary.summarize(3, [self._result("//a:a_test", "FAILED", _GTEST)])
        self.assertEqual(final, "1 passed, 1 failed, 2 skipped")
        self.assertEqual(counts.failed, ["//a:a_test A.Bad"])
        self.assertIn("//a:a_test A.Left: no io_uring here", counts.skipped)

    def test_a_crash_without_report_is_one_failure(self):
        counts, final = test_summary.summarize(3, [self._result("//a:a_test", "FAILED")])
        self.assertEqual(final, "0 passed, 1 failed")
        self.assertEqual(counts.failed, ["//a:a_test (failed)"])

    def test_a_crash_after_passing_cases_is_still_a_failure(self):
        xml = '<testsuites><testsuite><testcase name="G" classname="A"/></testsuite></testsuites>'
        _, final = test_summary.summarize(3, [self._result("//a:a_test", "TIMEOUT", xml)])
        self.assertEqual(final, "1 passed, 1 failed")

    def test_a_test_that_does_not_build_is_a_failure(self):
        counts, final = test_summary.summarize(1, [self._configured("//a:a_test")])
        self.assertEqual(final, "0 passed, 1 failed")
        self.assertEqual(counts.failed, ["//a:a_test (failed to build)"])

    def test_a_test_built_but_filtered_out_is_not_counted(self):
        completed = json.dumps({
            "id": {"targetCompleted": {"label": "//a:gpu_test"}},
            "completed": {"success": True},
        })
        lines = [self._configured("//a:gpu_test"), completed]
        lines.append(self._result("//a:a_test", "PASSED"))
        self.assertEqual(test_summary.summarize(0, lines)[1], "1 passed, 0 failed")

    def test_a_program_without_test_cases_is_a_failure(self):
        lines = [self._result("//a:a_test", "PASSED", "<testsuites/>")]
        self.assertEqual(test_summary.summarize(0, lines)[1], "0 passed, 1 failed")

    def test_a_bad_build_file_cannot_look_like_success(self):
        self.assertEqual(test_summary.summarize(1, [])[1], "0 passed, 1 failed")

    def test_the_last_attempt_counts(self):
        mended = _GTEST.replace("<failure message=\"x\"/>", "")
        lines = [self._result("//a:a_test", "FAILED", _GTEST),
                 self._result("//a:a_test", "PASSED", mended, attempt=2)]
        self.assertEqual(test_summary.summarize(0, lines)[1], "2 passed, 0 failed, 2 skipped")


if __name__ == "__main__":
    unittest.main()
