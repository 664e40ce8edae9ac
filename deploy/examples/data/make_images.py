#!/usr/bin/env python3
"""make_images.py [FOLDER]: images for deploy/examples/images.toml, 100 of each of three shapes, on noise.

PNG, without any library.
"""

import pathlib
import random
import struct
import sys
import zlib

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/parcae-images")
draw = random.Random(1)
SHAPES = {
    "cross": lambda x, y, r: abs(x) < r / 3 and abs(y) < r or abs(y) < r / 3 and abs(x) < r,
    "disc": lambda x, y, r: x * x + y * y < r * r,
    "square": lambda x, y, r: max(abs(x), abs(y)) < r,
}


def png(width, height, rows):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


for label, inside in SHAPES.items():
    (folder / label).mkdir(parents=True, exist_ok=True)
    for number in range(100):
        width, height = draw.randrange(40, 60), draw.randrange(40, 60)
        colour, radius = [draw.randrange(120, 256) for _ in range(3)], draw.uniform(9, 15)
        left, top = draw.uniform(16, width - 16), draw.uniform(16, height - 16)
        rows = []
        for y in range(height):
            row = bytearray()
            for x in range(width):
                paint = inside(x - left, y - top, radius)
                row += bytes(min(255, c + draw.randrange(-30, 31)) if paint else draw.randrange(80) for c in colour)
            rows.append(bytes(row))
        (folder / label / f"{number}.png").write_bytes(png(width, height, rows))
print(f"{folder}: 100 images each of {', '.join(SHAPES)}")
