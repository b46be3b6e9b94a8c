#!/usr/bin/env python3
"""Make a table of templates from an edited copy of the kernels, for programs that differ from rtx in that table alone.

usage: plant_table.py OUT.c ROOT EDIT [arguments of tools/kgen.py]
  edited     one more comment line in the body of row
  expression one more comment line in the table of ops, where kernels take their expressions from
  slow       row does all its work REPEATS times: parameter SLOW, of which 1 is the only value
  unlisted   the same with SLOW=0, the fast one, in the list; the default and every seed stay slow
  wrong      the same, but SLOW=0 is fast because it leaves the first unit of work out
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPEATS = 8
RUN = "void K_FN(run)(const k_call *c, int64_t begin, int64_t end)"


def once(text, old, new):
    """text with the one place where `old` stands changed."""
    if text.count(old) != 1:
        sys.exit(f"plant_table: '{old}' stands {text.count(old)} times in the template")
    return text.replace(old, new)


def comment(text):
    return once(text, RUN, "/* an edit */\n" + RUN)


def comment_ops(text):
    return text + "/* an edit */\n"


def slow(values, fast_from="begin"):
    def change(text):
        text = once(text, "\n * @tol", f"\n * @param   SLOW 1 {{{values}}} 1 = all work {REPEATS} times\n * @tol")
        text = once(text, RUN, "static __attribute__((noinline)) " + RUN.replace("run", "once"))
        return text + f"""
{RUN}
{{
    if (!SLOW) begin = {fast_from};
    for (int i = 0; i < (SLOW ? {REPEATS} : 1); i++) K_FN(once)(c, begin, end);
}}
"""
    return change


EDITS = {
    "edited": ("kernels/cpu/row.k.c", comment),
    "expression": ("src/ir/ops.def", comment_ops),
    "slow": ("kernels/cpu/row.k.c", slow("1")),
    "unlisted": ("kernels/cpu/row.k.c", slow("0,1")),
    "wrong": ("kernels/cpu/row.k.c", slow("0,1", "K_MAX(begin, 1)")),
}


def main():
    out, root, edit, *rest = sys.argv[1:]
    root = pathlib.Path(root).resolve()
    name, change = EDITS[edit]
    with tempfile.TemporaryDirectory() as copy:
        copy = pathlib.Path(copy)
        for folder in ("kernels", "src/ir", "src/synth"):
            shutil.copytree(root / folder, copy / folder)
        file = copy / name
        file.write_text(change(file.read_text()))
        moved = [a if a.startswith("--") else str(copy / pathlib.Path(a).resolve().relative_to(root)) for a in rest]
        subprocess.run([sys.executable, root / "tools/kgen.py", out, copy, *moved], check=True)


main()
