#!/usr/bin/env python3
"""Who may include whom, and which C library calls are kept to one file. Exit 1 with file:line on a breach."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# module: modules whose headers it may include besides its own and include/rtx. ARCHITECTURE: one direction of flow.
ALLOWED = {
    "base": "",
    "format": "base",
    "ir": "base format",
    "device": "base format backend",
    "backend": "base format device",
    "frontend": "base format ir",
    "passes": "base format ir",
    "synth": "base format ir",  # never tune: hardware facts come by pointer
    "lower": "base format ir passes synth",  # builds synth's problems, so it stands above both
    "tune": "base format ir synth device",
    "worker": "base format device",
    "run": "base format device",  # librtx-run ships without a compiler
    "pipeline": "base format ir device frontend passes synth lower tune run",
    "cli": "base format ir device frontend passes synth lower tune run pipeline",
}

HEAP = r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf|vasprintf"
# what: (pattern, files that may, modules that may)
BANNED = {
    "heap call outside base_alloc.c": (HEAP, {"base_alloc.c"}, set()),
    "getenv outside base_env.c": (r"getenv|secure_getenv", {"base_env.c"}, set()),
    "printing in a library module": (r"printf|vprintf|puts|putchar|perror", set(), {"cli", "worker"}),
    "ending the process in a library module": (r"exit|abort|quick_exit", set(), {"cli", "worker"}),
    "unbounded C string call": (r"strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca", set(), set()),
}
STDERR = re.compile(r"\b(?:stderr|stdout)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(match):
    """Comments and literals become spaces, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match.group())


def module_of(path):
    parts = path.relative_to(ROOT / "src").parts
    return parts[0] if len(parts) > 1 else "pipeline"


def check_includes(path, module, homes, faults):
    may = {module, *ALLOWED[module].split()}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = INCLUDE.match(line)
        if not m or m.group(1).startswith("rtx/"):
            continue
        home = homes.get(Path(m.group(1)).name)
        if home and home not in may:
            faults.append(f"{path.relative_to(ROOT)}:{number}: {module} may not include {m.group(1)} of {home}")


def check_calls(path, module, faults):
    for number, line in enumerate(NOT_CODE.sub(blank, path.read_text()).splitlines(), 1):
        where = f"{path.relative_to(ROOT)}:{number}"
        for what, (names, files, modules) in BANNED.items():
            if path.name in files or module in modules:
                continue
            m = re.search(rf"(?<![\w.>])(?:{names})\s*\(", line)
            if m:
                faults.append(f"{where}: {what}: {m.group().strip()}")
        if module not in ("cli", "worker") and STDERR.search(line):
            faults.append(f"{where}: a library module names stdout or stderr")


def main():
    sources = [p for p in sorted((ROOT / "src").rglob("*")) if p.suffix in (".c", ".h", ".def")]
    homes = {p.name: module_of(p) for p in sources}
    faults = []
    for path in sources:
        module = module_of(path)
        if module not in ALLOWED:
            faults.append(f"{path.relative_to(ROOT)}:1: folder {module} has no row in {Path(__file__).name}")
            continue
        check_includes(path, module, homes, faults)
        check_calls(path, module, faults)
    print("\n".join(faults) if faults else f"layers: {len(sources)} files ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
