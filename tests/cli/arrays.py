#!/usr/bin/env python3
"""Small .npy files for the command-line tests, without NumPy.

usage: arrays.py make FILE DTYPE SHAPE [--fortran]     DTYPE f4, i8 …, SHAPE 2x3; elements count up by a quarter (floats) or one
       arrays.py show FILE                             dtype, shape and the first elements
"""
import ast
import math
import struct
import sys

CODE = {"f4": "f", "f8": "d", "i8": "q", "i4": "i", "b1": "?"}


def make(path, dtype, shape, fortran=False):
    dims = tuple(int(x) for x in shape.split("x") if x)
    n = math.prod(dims)
    values = [i % 16 / 4 if dtype[0] == "f" else i % 7 for i in range(n)]
    head = str({"descr": ("|" if dtype == "b1" else "<") + dtype, "fortran_order": fortran, "shape": dims})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{n}{CODE[dtype]}", *values))


def show(path):
    data = open(path, "rb").read()
    n = struct.unpack("<H", data[8:10])[0]
    head = ast.literal_eval(data[10:10 + n].decode())
    assert (10 + n) % 64 == 0 and not head["fortran_order"]
    count = math.prod(head["shape"])
    values = struct.unpack(f"<{count}{CODE[head['descr'][1:]]}", data[10 + n:])
    print(head["descr"], head["shape"], "finite" if all(math.isfinite(v) for v in values) else "not finite")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:5], fortran="--fortran" in sys.argv)
    else:
        show(sys.argv[2])
