#!/usr/bin/env python3
"""Pack kernel templates into a C table: bytes, hash, and the parameters that their header comments declare.

usage: kgen.py OUT.c ROOT --prelude FILE... --renderer FILE... --template FILE...

Nothing is rendered here; text is made by src/synth/syn_render.c alone. C17 has no #embed, so text becomes byte arrays.
Header lines (first comment of a template; kernels/HOWTO.md):
  @kernel NAME   @what …   @param NAME default {v1,v2,…} meaning   @require EXPR   @seed [cond…] NAME=v…   @tol …   @source …
A seed's word is an assignment if it is PARAM=v, else a condition (LEVEL=4 and M<=16 both are).
"""
import argparse, hashlib, pathlib, re, sys

KEYS = {"kernel", "what", "param", "require", "seed", "tol", "source"}


def fail(file, text):
    sys.exit(f"{file}: {text}")


def header(file, text):
    """(entries, body, line of the body): entries are (key, value) in order; continued lines are joined."""
    end = text.find("*/")
    if not text.startswith("/* @kernel") or end < 0:
        fail(file, "must begin with a comment that begins with @kernel")
    entries = []
    for line in text[2:end].split("\n"):
        line = re.sub(r"^\s*\*?\s*", "", line)
        m = re.match(r"@(\w+)\s+(.*)", line)
        if m and m.group(1) not in KEYS:
            fail(file, f"unknown header line @{m.group(1)}")
        if m:
            entries.append([m.group(1), m.group(2).strip()])
        elif not line:
            break
        else:
            entries[-1][1] += " " + line.strip()
    body = text[end + 2:]
    start = len(body) - len(body.lstrip("\n"))
    return entries, body[start:], text[:end + 2].count("\n") + start + 1


def parse(file, entries):
    t = {"params": [], "require": [], "seeds": [], "name": None}
    for key, value in entries:
        if key == "kernel":
            t["name"] = value
        elif key == "param":
            m = re.match(r"(\w+)\s+(-?\d+)\s+\{([-\d,\s]+)\}\s*(.*)", value)
            if not m:
                fail(file, f"@param {value}: wanted NAME default {{v1,v2}} meaning")
            values = [int(v) for v in m.group(3).split(",")]
            if int(m.group(2)) not in values:
                fail(file, f"@param {m.group(1)}: the default is not in its list")
            t["params"].append((m.group(1), int(m.group(2)), values, m.group(4)))
        elif key == "require":
            t["require"].append(f"({value})")
        elif key == "seed":
            t["seeds"].append(value)
    return t


def seed(file, t, text):
    names = [p[0] for p in t["params"]]
    value = {p[0]: p[1] for p in t["params"]}
    conditions = []
    for word in text.split():
        m = re.match(r"^(\w+)=(-?\d+)$", word)
        if m and m.group(1) in names:
            value[m.group(1)] = int(m.group(2))
        elif m:
            conditions.append(f"{m.group(1)} == {m.group(2)}")
        elif re.match(r"^\w+\s*(<=|>=|<|>|!=|==).+$", word):
            conditions.append(word)
        else:
            fail(file, f"@seed: cannot read '{word}'")
    return " && ".join(conditions), [value[n] for n in names]


def c_bytes(name, data):
    rows = [", ".join(str(b) for b in data[i:i + 32]) for i in range(0, len(data), 32)]
    return f"static const char {name}[] = {{\n    " + ",\n    ".join(rows) + ", 0\n};\n"


def c_str(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def c_sha(data):
    return "{" + ", ".join(f"0x{b:02x}" for b in hashlib.sha256(data).digest()) + "}"


def emit_template(out, i, rel, file):
    raw = file.read_bytes()
    entries, body, line = header(file, raw.decode())
    t = parse(file, entries)
    out.append(c_bytes(f"text_{i}", body.encode()))
    for k, p in enumerate(t["params"]):
        out.append(f"static const int64_t values_{i}_{k}[] = {{{', '.join(map(str, p[2]))}}};\n")
    if t["params"]:
        out.append(f"static const syn_param params_{i}[] = {{\n")
        for k, p in enumerate(t["params"]):
            out.append(f"    {{{c_str(p[0])}, {p[1]}, values_{i}_{k}, {len(p[2])}, {c_str(p[3])}}},\n")
        out.append("};\n")
    seeds = [seed(file, t, s) for s in t["seeds"]]
    if seeds:
        out.append(f"static const syn_seed seeds_{i}[] = {{\n")
        for cond, values in seeds:
            out.append(f"    {{{c_str(cond)}, {{{', '.join(map(str, values)) or '0'}}}}},\n")
        out.append("};\n")
    family = file.parent.name
    return (f"    {{{c_str(family + '/' + t['name'])}, {c_str(rel)}, text_{i}, {len(body.encode())}, {line},\n     {c_sha(raw)},\n"
            f"     {f'params_{i}' if t['params'] else 'NULL'}, {len(t['params'])}, {c_str(' && '.join(t['require']))},\n"
            f"     {f'seeds_{i}' if seeds else 'NULL'}, {len(seeds)}}},\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("root", type=pathlib.Path)
    for name in ("prelude", "renderer", "template"):
        ap.add_argument("--" + name, nargs="+", type=pathlib.Path, required=True)
    a = ap.parse_args()
    root = a.root.resolve()

    def rel(f):
        return f.resolve().relative_to(root).as_posix()

    out = ["/* Made by tools/kgen.py from kernels/. Do not edit. */\n", '#include "syn_form.h"\n\n']
    for i, f in enumerate(a.prelude):
        out.append(c_bytes(f"prelude_{i}", f.read_bytes()))
    out.append("static const syn_prelude preludes[] = {\n")
    for i, f in enumerate(a.prelude):
        out.append(f"    {{{c_str(rel(f))}, prelude_{i}, {len(f.read_bytes())}}},\n")
    out.append("};\nconst syn_prelude *syn_prelude_table(size_t *out_count)\n{\n    *out_count = sizeof preludes / sizeof *preludes;\n    return preludes;\n}\n")
    both = b"".join(f.read_bytes() for f in a.prelude + a.renderer)
    out.append(f"const uint8_t *syn_prelude_sha256(void)\n{{\n    static const uint8_t sum[32] = {c_sha(both)};\n    return sum;\n}}\n\n")
    rows = [emit_template(out, i, rel(f), f) for i, f in enumerate(sorted(a.template))]
    out.append("static const syn_template templates[] = {\n" + "".join(rows) + "};\n")
    out.append("const syn_template *syn_template_table(size_t *out_count)\n{\n    *out_count = sizeof templates / sizeof *templates;\n    return templates;\n}\n")
    a.out.write_text("".join(out))


main()
