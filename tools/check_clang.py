#!/usr/bin/env python3
"""Our sources through clang's warnings, none of them compiled: check_clang.py BUILD reads BUILD/compile_commands.json."""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = [ROOT / folder for folder in ("src", "tests", "tools")]


def command_of(entry):
    """clang instead of the compiler, and nothing that names an output."""
    words, kept, at = shlex.split(entry["command"]), [], 0
    while at < len(words):
        if words[at] in ("-o", "-MF", "-MQ", "-MT"):
            at += 1
        elif words[at] not in ("-c", "-MD", "-MMD", "ccache", entry["file"]):
            kept.append(words[at])
        at += 1
    return [os.environ.get("CLANG", "clang"), *kept[1:], "-fsyntax-only", entry["file"]]


def check(entry):
    r = subprocess.run(command_of(entry), cwd=entry["directory"], capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


def main():
    entries = {}
    for e in json.loads((Path(sys.argv[1]) / "compile_commands.json").read_text()):
        path = (Path(e["directory"]) / e["file"]).resolve()
        if any(folder in path.parents for folder in OURS):
            entries.setdefault(path, e)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, entries.values()))
    bad = [text for code, text in results if code]
    print("".join(bad) if bad else f"clang: {len(entries)} files ok")
    return 1 if bad or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
