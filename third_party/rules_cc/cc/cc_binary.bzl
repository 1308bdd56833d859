"""cc_binary under the file name newer rules_cc gives it."""

load(":defs.bzl", _cc_binary = "cc_binary")

cc_binary = _cc_binary
