"""cc_library under the file name newer rules_cc gives it."""

load(":defs.bzl", _cc_library = "cc_library")

cc_library = _cc_library
