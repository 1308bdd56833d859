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

def gantry_cuda_library(
        name,
        srcs,
        hdrs,
        deps = [],
        cuda_deps = [],
        cuda_copts = [],
        **kwargs):
    """Kernels in .cu files and the plain C++ header of their launch functions.

    cuda_deps: other gantry_cuda_library, whose launch functions the sources call.

    NAME: compiled by nvcc; without the CUDA toolkit the headers only: callers select their own
    source files with if_cuda. NAME_emulated: the same sources for the CPU, for tests
    (device/cuda/emulation); launch functions take a StreamRunner* there.
    """
    deps = deps + ["//device/cuda:device_code"]
    built_deps = deps + cuda_deps + ["@cuda//:cudart"]
    cuda_objects(
        name = name + ".objects",
        srcs = if_cuda(srcs),
        hdrs = hdrs,
        copts = cuda_copts,
        tags = ["manual"],
        deps = built_deps,
    )
    cc_library(
        name = name,
        srcs = if_cuda([":" + name + ".objects"]),
        hdrs = hdrs,
        copts = _COPTS,
        features = _FEATURES,
        deps = built_deps,
        **kwargs
    )
    for src in srcs:
        # A compiler that is no CUDA compiler takes sources by their ending only.
        native.genrule(
            name = src + ".emulated",
            outs = [src + ".emulated.cc"],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), src),
            testonly = True,
            visibility = ["//visibility:private"],
        )
    cc_library(
        name = name + "_emulated",
        testonly = True,
        srcs = [src + ".emulated.cc" for src in srcs],
        hdrs = hdrs,
        copts = _COPTS + ["-O2", "-ffp-contract=off", "-Wno-unknown-pragmas"],
        features = _FEATURES,
        textual_hdrs = srcs,
        deps = deps + [dep + "_emulated" for dep in cuda_deps] + [
            "//device/cuda/emulation:device_code",
            "//device/cuda/emulation:stream_runner",
        ],
        **kwargs
    )
