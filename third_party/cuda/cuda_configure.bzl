"""Finds the CUDA toolkit, if there is one.

The repository always exists, so BUILD files name `@cuda//:cudart` unconditionally. Without a
toolkit (or with --config=nocuda) the library is empty and does not define GANTRY_CUDA.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

config_setting(
    name = "disabled",
    define_values = {{"gantry_cuda": "no"}},
)

cc_library(
    name = "cudart",
    deps = {cudart},
)

{rest}
"""

_TOOLKIT = """
cc_library(
    name = "toolkit",
    srcs = ["root/lib64/libcudart_static.a"],
    hdrs = glob([
        "root/include/**/*.h",
        "root/include/**/*.hpp",
        "root/include/**/*.inl",
        "root/include/crt/*",
    ], exclude = [
        "root/include/cccl/**",
        "root/include/cub/**",
        "root/include/thrust/**",
        "root/include/nv/**",
        "root/include/cuda/**",
    ]),
    defines = ["GANTRY_CUDA=1"],
    includes = ["root/include"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
    visibility = ["//visibility:private"],
)
"""

def _cuda_configure_impl(ctx):
    root = ctx.os.environ.get("GANTRY_CUDA_ROOT", "/usr/local/cuda")
    nvcc = ctx.path(root + "/bin/nvcc")
    present = nvcc.exists
    if present:
        ctx.symlink(root, "root")
    ctx.file("defs.bzl", 'CUDA_PRESENT = {}\nNVCC = "{}"\n'.format(present, nvcc))
    toolkit = 'select({":disabled": [], "//conditions:default": [":toolkit"]})'
    ctx.file("BUILD.bazel", _BUILD.format(
        cudart = toolkit if present else "[]",
        rest = _TOOLKIT if present else "",
    ))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["GANTRY_CUDA_ROOT"],
    local = True,
)
