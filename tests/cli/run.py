#!/usr/bin/env python3
"""Run the command-line tests: tests/cli/NAME.sh against NAME.stdout, NAME.stderr and NAME.exit, and every command of docs/cli.md.

usage: run.py RTX [--update] [NAME…]        RTX is the program; --update writes what came out as the new goldens

Each script runs with sh in an empty folder of its own, with rtx first on PATH, its own cache and the folder of the scripts in
$SRC. Numbers with a point, times and the folder's name are made alike before the comparison. A missing golden means "empty".
Commands of docs/cli.md stand in blocks marked ```sh and run in order, in one folder; `# exit N` says that N is expected.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOC = HERE.parent.parent / "docs" / "cli.md"


def environment(rtx, home):
    env = {k: v for k, v in os.environ.items() if not k.startswith("RTX_")}
    tools = Path(home) / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "rtx").write_text(f'#!/bin/sh\nexec "{rtx}" "$@"\n')
    (tools / "rtx").chmod(0o755)
    worker = rtx.parent / "rtx-worker"
    env.update(PATH=f"{tools}:{env['PATH']}", XDG_CACHE_HOME=f"{home}/cache", SRC=str(HERE), TMPDIR=home, LC_ALL="C",
               RTX_WORKER=str(worker), NO_COLOR="1")
    return env


def alike(text, home):
    text = text.replace(str(home), "HOME")
    text = re.sub(r"\d+\.\d+(e[-+]?\d+)?", "#.#", text)
    return re.sub(r"commit [0-9a-f]{7,40}", "commit HASH", text)


def script(path, rtx, update):
    with tempfile.TemporaryDirectory() as home:
        work = Path(home) / "work"
        work.mkdir()
        r = subprocess.run(["sh", "-u", str(path)], cwd=work, env=environment(rtx, home), capture_output=True, text=True, timeout=600)
        got = {"stdout": alike(r.stdout, home), "stderr": alike(r.stderr, home), "exit": f"{r.returncode}\n" if r.returncode else ""}
        left = sorted(p.name for p in Path(home).iterdir() if p.name.startswith("rtx-"))
    faults = [f"left behind in TMPDIR: {left}"] if left else []
    for kind, text in got.items():
        golden = path.with_suffix("." + kind)
        want = golden.read_text() if golden.exists() else ""
        if text == want:
            continue
        if not update:
            faults.append(f"{kind} differs\n--- wanted\n{want}--- got\n{text}")
        elif text:
            golden.write_text(text)
        else:
            golden.unlink(missing_ok=True)
    if faults and r.stderr and not any("stderr" in f for f in faults):
        faults.append("--- stderr\n" + r.stderr)
    return faults


def documented():
    """(command, expected exit) of each line in the ```sh blocks."""
    for block in re.findall(r"^```sh\n(.*?)^```", DOC.read_text(), re.S | re.M):
        for line in block.splitlines():
            m = re.match(r"(.*?)\s*(?:#\s*(?:exit (\d+))?.*)?$", line)
            if m.group(1):
                yield m.group(1), int(m.group(2) or 0)


def document(rtx):
    faults = []
    with tempfile.TemporaryDirectory() as home:
        work = Path(home) / "work"
        work.mkdir()
        env = environment(rtx, home)
        for command, want in documented():
            r = subprocess.run(["sh", "-c", command], cwd=work, env=env, capture_output=True, text=True, timeout=600)
            if r.returncode != want:
                faults.append(f"`{command}` exits {r.returncode}, the page says {want}\n{r.stderr[-600:]}")
    return faults


def main():
    words = [a for a in sys.argv[1:] if a != "--update"]
    if not words:
        sys.exit(__doc__)
    rtx, names, bad = Path(words[0]).resolve(), words[1:], 0
    for path in sorted(HERE.glob("*.sh")):
        if names and path.stem not in names:
            continue
        faults = script(path, rtx, "--update" in sys.argv)
        bad += bool(faults)
        print(f"{'FAIL' if faults else 'ok'} {path.stem}", *faults, sep="\n" if faults else " ", flush=True)
    if not names or "docs" in names:
        faults = document(rtx)
        bad += bool(faults)
        print(f"{'FAIL' if faults else 'ok'} docs/cli.md", *faults, sep="\n" if faults else " ", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
