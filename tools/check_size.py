#!/usr/bin/env python3
"""Size, name and head of every hand-written source file. Exit 1 with file:line on a breach."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 800

# path: reason. Empty is the goal.
LARGE = {}

# folder below src: what its file names begin with. A name may also be the bare word: ir/ir.h.
PREFIXES = {
    "base": ["base_"],
    "format": ["fmt_"],
    "ir": ["ir_", "ops"],
    "frontend": ["fe_"],
    "passes": ["pass_"],
    "synth": ["syn_"],
    "lower": ["lower_"],
    "tune": ["tun_"],
    "run": ["run_", "aot_"],
    "device": ["dev_"],
    "backend": ["be_"],
    "cli": ["cli_"],
    "worker": ["worker_"],
}

HEADS = {".c": "/*", ".h": "/*", ".def": "/*", ".py": ('"""', "#!", "#"), ".sh": "#!"}
FOLDERS = ["include", "src", "kernels", "tools", "python", "tests", "bench"]


def check_name(path, seen, faults):
    rel = path.relative_to(ROOT)
    if path.name in seen:
        faults.append(f"{rel}:1: name already taken by {seen[path.name]}")
    seen[path.name] = rel
    folder = path.relative_to(ROOT / "src").parts[0]
    prefixes = PREFIXES.get(folder, []) if folder != path.name else ["pipe"]
    if not any(path.name.startswith(p) or path.stem == p.rstrip("_") for p in prefixes):
        faults.append(f"{rel}:1: name must begin with {' or '.join(prefixes) or 'a prefix listed in check_size.py'}")


def check_text(path, faults):
    rel = path.relative_to(ROOT)
    lines = path.read_text(errors="replace").splitlines()
    if len(lines) > MAX_LINES and str(rel) not in LARGE:
        faults.append(f"{rel}:{MAX_LINES + 1}: {len(lines)} lines, at most {MAX_LINES}: split it")
    if lines and not lines[0].startswith(HEADS[path.suffix]):
        faults.append(f"{rel}:1: the first line must begin the comment that says what the file is for")


def main():
    faults, seen, count = [], {}, 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in HEADS or not path.is_file() or "__pycache__" in path.parts:
                continue
            count += 1
            check_text(path, faults)
            if folder == "src":
                check_name(path, seen, faults)
    print("\n".join(faults) if faults else f"size: {count} files ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
