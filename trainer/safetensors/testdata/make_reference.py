"""Writes reference.safetensors beside itself: a tensor of each type, as the reference does.

Development only: python make_reference.py, with the packages safetensors and numpy.
"""

import pathlib

import numpy
from safetensors import TensorSpec, serialize

# What the library calls them, and bits an element.
TYPES = {
    "bool": 8, "float4_e2m1fn_x2": 8, "uint8": 8, "int8": 8, "float8_e5m2": 8, "float8_e4m3fn": 8,
    "float8_e8m0fnu": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "int16": 16, "uint16": 16,
    "float16": 16, "bfloat16": 16, "int32": 32, "uint32": 32, "float32": 32, "complex64": 64,
    "float64": 64, "int64": 64, "uint64": 64,
}

arrays = {}  # keeps the bytes that the specifications point to
tensors = {}


def add(name, dtype, shape, data):
    arrays[name] = numpy.frombuffer(data or b"\0", dtype=numpy.uint8)
    tensors[name] = TensorSpec(
        dtype=dtype, shape=shape, data_ptr=arrays[name].ctypes.data, data_len=len(data)
    )


for number, (dtype, bits) in enumerate(TYPES.items()):
    data = bytes((number * 16 + i) % 256 for i in range(6 * bits // 8))
    add("of " + dtype, dtype, [2, 3], data)
add("b.scalar", "float32", [], b"\0\0\x80\x3f")
add("a.empty", "float32", [0, 5], b"")
add('z "quoted" \\ \t é', "float32", [1], b"\0\0\0\x40")

path = pathlib.Path(__file__).parent / "reference.safetensors"
path.write_bytes(bytes(serialize(tensors, {"format": "pt"})))
print(path.stat().st_size, "bytes")
