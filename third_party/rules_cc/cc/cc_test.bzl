"""cc_test under the file name newer rules_cc gives it."""

load(":defs.bzl", _cc_test = "cc_test")

cc_test = _cc_test
