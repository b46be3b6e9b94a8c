#!/usr/bin/env python3
"""The checks that fail the build: layers and sizes. check_tree.py STAMP DEPFILE writes both for ninja when all is well."""
import sys
from pathlib import Path

import check_layers
import check_size


def main():
    stamp, depfile = map(Path, sys.argv[1:])
    if check_layers.main() | check_size.main():
        return 1
    files = sorted({str(p).replace(" ", "\\ ") for folder in check_size.FOLDERS for p in (check_size.ROOT / folder).rglob("*")
                    if p.is_file() and p.suffix in check_size.HEADS})
    depfile.write_text(f"{stamp}: {' '.join(files)}\n")
    stamp.write_text("")
    return 0


if __name__ == "__main__":
    sys.exit(main())
