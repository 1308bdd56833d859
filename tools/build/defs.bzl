"""The rules every Gantry BUILD file uses: the native ones with our flags."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load(":cuda.bzl", "cuda_objects", _if_cuda = "if_cuda")

if_cuda = _if_cuda

_COPTS = ["-Wall", "-Wextra", "-Werror"]
_FEATURES = ["layering_check"]

def gantry_cc_library(name, srcs = [], hdrs = [], deps = [], copts = [], features = [], **kwargs):
    """A library. One per header and source pair; deps are exactly what the files include."""
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = _COPTS + copts,
        features = _FEATURES + features,
        deps = deps,
        **kwargs
    )

def gantry_cc_test(
        name,
        size,
        srcs = None,
        deps = [],
        main = "@gtest//:gtest_main",
        copts = [],
        data = [],
        features = [],
        **kwargs):
    """A test of `srcs` (default: NAME.cc) with GoogleTest's main; main = None to bring your own."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = _COPTS + copts,
        data = data + ["//tools/build:tsan.supp"],
        features = _FEATURES + features,
        deps = deps + (["@gtest//:gtest", main] if main else []),
        **kwargs
    )

def gantry_cc_binary(name, srcs = None, deps = [], copts = [], features = [], **kwargs):
    """A program from `srcs` (default: NAME.cc)."""
    cc_binary(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = _COPTS + copts,
        features = _FEATURES + features,
        deps = deps,
        **kwargs
    )

def gantry_cuda_library(name, srcs, hdrs, deps = [], **kwargs):
    """Kernels in .cu files and the plain C++ header of their launch functions.

    Without the CUDA toolkit the library holds its headers only: callers select their own source
    files with if_cuda.
    """
    cuda_objects(
        name = name + ".objects",
        srcs = if_cuda(srcs),
        hdrs = hdrs,
        tags = ["manual"],
        deps = deps + ["@cuda//:cudart"],
    )
    cc_library(
        name = name,
        srcs = if_cuda([":" + name + ".objects"]),
        hdrs = hdrs,
        copts = _COPTS,
        features = _FEATURES,
        deps = deps + ["@cuda//:cudart"],
        **kwargs
    )
