#!/usr/bin/env python3
"""Checks text against the CHECK lines of a file: the part of LLVM's FileCheck that golden tests here use.

  irck.py FILE < text             match text against FILE
  irck.py --run PROG FILE...      run each file's RUN line: `rtx opt` becomes PROG, `irck` this script, %s the file

Lines in FILE, after any comment mark:
  CHECK: p         p occurs on a later line than the last match
  CHECK-NEXT: p    p occurs on the line after the last match
  CHECK-NOT: p     p does not occur between the matches around it
  CHECK-LABEL: p   divides the text: checks before it look only before it, captures start anew
  %[[X:.*]]        capture by regular expression;  %[[X]] the captured text again
All other text is literal; runs of blanks match runs of blanks.
"""
import re
import shlex
import subprocess
import sys

KIND = re.compile(r"CHECK(-NEXT|-NOT|-LABEL)?:\s?(.*?)\s*$")
VAR = re.compile(r"\[\[(\w+)(?::(.*?))?\]\]")


class Mismatch(Exception):
    pass


def literal(text):
    return r"[ \t]+".join(re.escape(part) for part in re.split(r"[ \t]+", text))


def pattern(text, captured):
    """The pattern as a regular expression; known captures are put in, new ones become groups."""
    out, at, new = [], 0, {}
    for m in VAR.finditer(text):
        out.append(literal(text[at:m.start()]))
        name, expr = m.group(1), m.group(2)
        if expr is not None:
            new[name] = "v%d" % len(new)
            out.append("(?P<%s>%s)" % (new[name], expr.replace(".*", r"[\w.]+") if expr == ".*" else expr))
        elif name in new:
            out.append("(?P=%s)" % new[name])
        elif name in captured:
            out.append(re.escape(captured[name]) + r"(?!\w)")
        else:
            raise Mismatch("[[%s]] is used before it is captured" % name)
        at = m.end()
    out.append(literal(text[at:]))
    return re.compile("".join(out)), new


def read_checks(path):
    checks = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            m = KIND.search(line)
            if m:
                checks.append(((m.group(1) or "").lstrip("-"), m.group(2), number))
    if not checks:
        raise Mismatch("no CHECK lines")
    return checks


def find(regex, lines, start, end):
    for k in range(start, end):
        m = regex.search(lines[k])
        if m:
            return k, m
    return None, None


def refuse(nots, lines, start, end, captured):
    for text, number in nots:
        k, _ = find(pattern(text, captured)[0], lines, start, end)
        if k is not None:
            raise Mismatch("line %d: CHECK-NOT: %s\n  is found: %s" % (number, text, lines[k]))


def section(checks, lines, start, end):
    """Checks between two labels, within lines[start:end]."""
    captured, nots, at = {}, [], start
    for kind, text, number in checks:
        if kind == "NOT":
            nots.append((text, number))
            continue
        regex, new = pattern(text, captured)
        limit = min(at + 1, end) if kind == "NEXT" else end
        k, m = find(regex, lines, at, limit)
        if m is None:
            near = lines[at] if at < end else "(end of text)"
            raise Mismatch("line %d: CHECK%s: %s\n  is not found, from: %s" % (number, "-" + kind if kind else "", text, near))
        refuse(nots, lines, at, k, captured)
        captured.update({name: m.group(group) for name, group in new.items()})
        nots, at = [], k + 1
    refuse(nots, lines, at, end, captured)


def check(path, text):
    lines, at = text.splitlines(), 0
    blocks = [(None, [])]
    for c in read_checks(path):
        if c[0] == "LABEL":
            blocks.append((c, []))
        else:
            blocks[-1][1].append(c)
    starts = []
    for label, _ in blocks:
        if label is None:
            starts.append(0)
            continue
        k, m = find(pattern(label[1], {})[0], lines, at, len(lines))
        if m is None:
            raise Mismatch("line %d: CHECK-LABEL: %s\n  is not found" % (label[2], label[1]))
        starts.append(k + 1)
        at = k + 1
    for i, (_, checks) in enumerate(blocks):
        end = starts[i + 1] - 1 if i + 1 < len(blocks) else len(lines)
        section(checks, lines, starts[i], end)


def run_file(prog, path):
    with open(path, encoding="utf-8") as f:
        m = re.search(r"RUN:\s*(.*)", f.read())
    if not m:
        raise Mismatch("no RUN line")
    left, bar, right = m.group(1).partition("|")
    if not bar or not left.startswith("rtx opt ") or right.split() != ["irck", "%s"]:
        raise Mismatch("RUN line is not `rtx opt … %s | irck %s`")
    words = [path if w == "%s" else w for w in shlex.split(left)[2:]]
    done = subprocess.run(shlex.split(prog) + words, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Mismatch("exit %d: %s" % (done.returncode, done.stderr.strip()))
    try:
        check(path, done.stdout)
    except Mismatch as e:
        raise Mismatch("%s\n%s" % (e, done.stdout)) from None


def main(args):
    if args[:1] == ["--run"] and len(args) >= 3:
        failed = 0
        for path in args[2:]:
            try:
                run_file(args[1], path)
            except Mismatch as e:
                failed += 1
                print("%s: %s" % (path, e), file=sys.stderr)
        print("%d golden files, %d failed" % (len(args) - 2, failed))
        return failed != 0
    if len(args) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        check(args[0], sys.stdin.read())
    except Mismatch as e:
        print("%s: %s" % (args[0], e), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
