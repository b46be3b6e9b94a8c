#!/usr/bin/env python3
"""What tuning predicts, twice, against what the program takes, and against the floor.

    bench/plans.py MODEL.onnx [--batch 1] [--seq 16,64,128,256] [--json FILE]

Two independent tunings (caches of their own) of MODEL, a model with free sizes batch and seq, at 1 and 2 threads:
  agreement   predicted total of each plan, their difference, and how many picks are the same. The speed of a shared machine changes
              between two tunings; both time the same static choices, so "at equal speed" sets the sums of those equal
  ledger      predicted total, of least samples, against the least time of the running program, right after both tunings
  floor       max(FLOPs / measured peak, bytes / measured bandwidth) summed over the steps, as a share of default and tuned
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT + "/python")
RTX = ROOT + "/build/rtx"


def rtx_json(*args):
    return json.loads(subprocess.run([RTX, *args, "--json"], capture_output=True, text=True, check=True).stdout)


def picks(path):
    """{(problem, sizes, threads): record}"""
    return {(k["problem"], tuple(k["sizes"]), k["threads"]): k for k in rtx_json("explain", path)["kernels"]}


def at(plan, batch, seq, threads):
    """The records that one run of these sizes uses: keys of one free size hold rows, keys of two hold batch and length."""
    want = {0: (), 1: (batch * seq,), 2: (batch, seq)}
    chosen = {}
    for (problem, sizes, t), k in plan.items():
        if t == threads and (sizes == want.get(len(sizes)) or len(sizes) == 1 and sizes[0] == seq and (problem, (batch * seq,), t) not in plan):
            chosen[problem] = k
    return list(chosen.values())


def measure(path, threads, feed, expected_ns):
    """Least time in a process of its own, ns: NumPy's idle workers, which spin, would take a core from ours. Four seconds of runs,
    since a neighbour's load lasts longer than some."""
    with tempfile.TemporaryDirectory() as tmp:
        given = []
        for name, x in feed.items():
            np.save(f"{tmp}/{name}.npy", x)
            given += ["--input", f"{name}={tmp}/{name}.npy"]
        return rtx_json("run", path, "--threads", str(threads), "--repeat", str(int(4e9 / expected_ns) + 20), *given)["min_ms"] * 1e6


def inputs(path, batch, seq):
    import rtx
    rng, feed = np.random.default_rng(), {}
    for port in rtx.load(path).inputs:
        shape = tuple(d if isinstance(d, int) else {"batch": batch, "seq": seq}[d] for d in port.shape)
        if str(port.dtype).startswith("float"):
            feed[port.name] = rng.standard_normal(shape).astype(np.float32)
        elif "mask" in port.name:
            feed[port.name] = np.ones(shape, port.dtype)
        else:
            feed[port.name] = rng.integers(0, 2 if "type" in port.name else 20000, shape).astype(port.dtype)
    return feed


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--batch", type=int, default=1)
    ap.add_argument("--seq", default="16,64,128,256")
    ap.add_argument("--json")
    a = ap.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        paths = [f"{tmp}/{k}.rtxgc" for k in "ab"]
        for path in paths:
            subprocess.run([RTX, "compile", a.model, "-o", path, "--cache", path + ".cache"], check=True, stderr=subprocess.DEVNULL)
        plans, hw = [picks(p) for p in paths], rtx_json("profile", "--device", "cpu")
        same = sum(plans[0][k]["params"] == plans[1][k]["params"] for k in plans[0] if k in plans[1])
        print(f"picks: {same} of {len(plans[0])} the same in two independent tunings")
        for threads in (1, 2):
            for seq in map(int, a.seq.split(",")):
                total = [sum(k["ns"] * k["uses"] for k in at(p, a.batch, seq, threads)) for p in plans]
                steps = at(plans[0], a.batch, seq, threads)
                floor = sum(k["uses"] * k["floor_ns"] for k in steps)
                default = sum(k["default_ns"] * k["uses"] for k in steps)
                speed = sum(k["default_ns"] * k["uses"] for k in at(plans[1], a.batch, seq, threads)) / default
                taken = measure(paths[0], threads, inputs(paths[0], a.batch, seq), total[0])
                row = dict(threads=threads, batch=a.batch, seq=seq, predicted_ms=total[0] / 1e6, other_ms=total[1] / 1e6,
                           differ=abs(total[0] - total[1]) / total[0], even_ms=total[1] / speed / 1e6,
                           differ_equal=abs(total[0] - total[1] / speed) / total[0], measured_ms=taken / 1e6, ledger=total[0] / taken,
                           floor_ms=floor / 1e6, default_share=floor / default, tuned_share=floor / total[0])
                rows.append(row)
                print(f"{threads} threads {a.batch}x{seq}: predicted {row['predicted_ms']:.2f} and {row['other_ms']:.2f} ms (differ {row['differ']:.1%}, "
                      f"at equal speed {row['differ_equal']:.1%}), "
                      f"measured {row['measured_ms']:.2f} (predicted/measured {row['ledger']:.2f}), floor {row['floor_ms']:.2f}: "
                      f"default {row['default_share']:.2f}, tuned {row['tuned_share']:.2f} of it", flush=True)
    one, other, even = (sum(r[k] for r in rows) for k in ("predicted_ms", "other_ms", "even_ms"))
    print(f"all {len(rows)}: predicted {one:.2f} and {other:.2f} ms (differ {abs(one - other) / one:.1%}, at equal speed {abs(one - even) / one:.1%})")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(model=os.path.basename(a.model), cpu=hw["cpu"], same_picks=same, picks=len(plans[0]), rows=rows), f, indent=1)


main()
