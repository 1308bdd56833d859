"""Compiles .cu files with nvcc. Used through gantry_cuda_library in defs.bzl."""

load("@cuda//:defs.bzl", "CUDA_PRESENT", "NVCC")

# A100; RTX 30; RTX 40 and L40; H100 and H200; B200; RTX 50. PTX of the newest covers what comes
# after.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_86,code=sm_86",
    "-gencode=arch=compute_89,code=sm_89",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_100,code=sm_100",
    "-gencode=arch=compute_120,code=[sm_120,compute_120]",
]

def _cuda_objects_impl(ctx):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    objects = []
    for src in ctx.files.srcs:
        object = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all(["-std=c++20", "-ccbin=g++-12", "-O3", "-lineinfo", "-Werror=all-warnings"])
        args.add_all(["-Xcompiler", "-fPIC,-Wall,-Wextra,-fno-omit-frame-pointer"])
        args.add("-DGANTRY_CUDA=1")
        args.add_all(_ARCHITECTURES)
        args.add("--expt-relaxed-constexpr")  # constexpr functions of the host, such as conversions
        # A conversion operator with an unmet requires clause is said to be useless.
        args.add("-diag-suppress=554")
        args.add_all(ctx.attr.copts)
        args.add("-I.")
        args.add_all(compilation.defines, format_each = "-D%s")
        args.add_all(compilation.quote_includes, format_each = "-I%s")
        args.add_all(compilation.includes, format_each = "-I%s")
        args.add_all(compilation.system_includes, before_each = "-isystem")
        args.add("-c", src)
        args.add("-o", object)
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [compilation.headers]),
            outputs = [object],
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % src.short_path,
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def if_cuda(present, absent = []):
    """`present` when building with the CUDA toolkit, else `absent`; for srcs, deps and the like."""
    if not CUDA_PRESENT:
        return absent
    return select({
        "@cuda//:disabled": absent,
        "//conditions:default": present,
    })
