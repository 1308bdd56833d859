"""Bazel's native C++ rules under the names rules_cc gives them.

Debian's rules_cc does not load in Debian's Bazel, so this stands in for it.
"""

_TAG = "__CC_RULES_MIGRATION_DO_NOT_USE_WILL_BREAK__"

def _tagged(attrs):
    tags = attrs.get("tags")
    attrs["tags"] = [_TAG] if tags == None else tags + [_TAG]
    return attrs

def cc_binary(**attrs):
    native.cc_binary(**_tagged(attrs))

def cc_test(**attrs):
    native.cc_test(**_tagged(attrs))

def cc_library(**attrs):
    native.cc_library(**_tagged(attrs))

def cc_import(**attrs):
    native.cc_import(**_tagged(attrs))

def cc_toolchain(**attrs):
    native.cc_toolchain(**_tagged(attrs))

def cc_toolchain_suite(**attrs):
    native.cc_toolchain_suite(**_tagged(attrs))

def cc_proto_library(**attrs):
    native.cc_proto_library(**_tagged(attrs))

def objc_library(**attrs):
    native.objc_library(**_tagged(attrs))

def objc_import(**attrs):
    native.objc_import(**_tagged(attrs))

def fdo_prefetch_hints(**attrs):
    native.fdo_prefetch_hints(**_tagged(attrs))

def fdo_profile(**attrs):
    native.fdo_profile(**_tagged(attrs))
