#!/usr/bin/env python3
"""make_tokens.py [FOLDER]: tokens for deploy/examples/tokens.toml, a byte each.

Raw 16-bit numbers, and a file as NumPy writes them.
"""

import array
import pathlib
import sys

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/parcae-tokens")
texts = pathlib.Path("/usr/share/common-licenses")
folder.mkdir(parents=True, exist_ok=True)


def tokens(*names):
    values = array.array("H", list(b"".join((texts / name).read_bytes() for name in names)))
    if sys.byteorder == "big":
        values.byteswap()
    return values


(folder / "gpl.bin").write_bytes(tokens("GPL-2", "GPL-3").tobytes())
others = tokens("Apache-2.0", "Artistic", "MPL-2.0")
header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(others)},), }}".ljust(117) + "\n"
begin = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
(folder / "others.npy").write_bytes(begin + others.tobytes())
print(f"{folder}: gpl.bin and others.npy")
