"""cc_import under the file name newer rules_cc gives it."""

load(":defs.bzl", _cc_import = "cc_import")

cc_import = _cc_import
