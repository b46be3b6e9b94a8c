#!/usr/bin/env python3
"""rtx against ONNX Runtime, measured in blocks, every timed bundle checked in the same run.

    bench/peers.py minilm   [--threads 1,2] [--shapes 1x16,1x128] [--rounds N]
    bench/peers.py encoder  the same over a zoo encoder of MiniLM's size with seeded weights: needs no download
    bench/peers.py exports  the four exports of MiniLM against each other
    bench/peers.py zoo      gpt-block, llama-block, vit, encoder at three random sizes each
    bench/peers.py start    fresh processes: load, first result, whole process

A block is: rest 250 ms, one untimed call, some timed calls over rotating fresh inputs; engines in random order. A figure is
the median over rounds of the ratio of block medians: an idle peer's spinning worker would otherwise hold a core, and a slow
spell of the machine would hit one engine alone. A second session of the peer runs as control of the noise.
Needs numpy, onnxruntime, onnx, safetensors (tests/requirements.txt) and ./dev build; unset OPENBLAS_*, OMP_* and MKL_*.
"""
import argparse, json, os, platform, random, subprocess, sys, tempfile, time
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT + "/python")
RTX = ROOT + "/build/rtx"
CACHE = os.environ.get("RTX_BENCH_DIR", os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "rtx-bench"))
EXPORTS = ("eager-legacy", "sdpa-legacy", "eager-dynamo", "sdpa-dynamo")
rng = np.random.default_rng()


def minilm(kind):
    path = f"{CACHE}/minilm/minilm-{kind}.onnx"
    if not os.path.exists(path):
        subprocess.run([sys.executable, ROOT + "/tests/models/minilm/fill.py", CACHE + "/minilm"], check=True, stdout=subprocess.DEVNULL)
    return path


def bundle(model, name, *options):
    """Compile once a commit; later calls reuse the file."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    out = f"{CACHE}/{commit}/{name}.rtxgc"
    if not os.path.exists(out) or os.environ.get("RTX_BENCH_FRESH"):
        os.makedirs(os.path.dirname(out), exist_ok=True)
        subprocess.run([RTX, "compile", model, "-o", out, *options], check=True)
    return out


def tokens(batch, seq):
    ids = rng.integers(1000, 28000, (batch, seq)).astype(np.int64)
    mask = np.ones_like(ids)
    if batch > 1:
        for row in range(batch):
            mask[row, rng.integers(max(1, seq // 3), seq + 1):] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def peer(path, threads):
    import onnxruntime as ort
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, feed)))


def ours(path, threads):
    import rtx
    return rtx.load(path, threads=threads).run


def error(want, got):
    return max(float(np.linalg.norm(got[k].astype(np.float64) - v) / (np.linalg.norm(v.astype(np.float64)) + 1e-30)) for k, v in want.items())


def race(engines, feeds, reference, rounds=8, each=6, tolerance=1e-5):
    """{name: (ratio to the first engine, low, high, median seconds, best seconds)}"""
    want = [reference(f) for f in feeds]
    first = next(iter(engines))
    start = time.perf_counter()
    engines[first](feeds[0])
    if time.perf_counter() - start < 0.02:
        rounds, each = 2 * rounds, 2 * each
    blocks, times = {k: [] for k in engines}, {k: [] for k in engines}
    for _ in range(rounds):
        for name in random.sample(list(engines), len(engines)):
            time.sleep(0.25)
            run, block, shift = engines[name], [], random.randrange(len(feeds))
            run(feeds[0])
            for j in range(each):
                k = (j + shift) % len(feeds)
                start = time.perf_counter()
                got = run(feeds[k])
                block.append(time.perf_counter() - start)
            worst = error(want[k], got)
            if worst > tolerance:
                sys.exit(f"{name}: error {worst:.1e} in a timed call; no figure is given for wrong results")
            blocks[name].append(np.median(block))
            times[name] += block
    out = {}
    for name in engines:
        ratio = np.array(blocks[name]) / np.array(blocks[first])
        boot = [np.median(rng.choice(ratio, len(ratio))) for _ in range(1000)]
        out[name] = dict(ratio=float(np.median(ratio)), low=float(np.percentile(boot, 2.5)), high=float(np.percentile(boot, 97.5)),
                         median_ms=float(np.median(times[name]) * 1e3), best_ms=float(np.min(times[name]) * 1e3))
    return out


def geomean(values):
    return float(np.exp(np.mean(np.log(values))))


def save(kind, rows, extra=None):
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    record = dict(bench=kind, cpu=cpu, cores=len(os.sched_getaffinity(0)), rows=rows, **(extra or {}))
    if A.json:
        with open(A.json, "w") as f:
            json.dump(record, f, indent=1)


def hidden_states(batch, seq):
    mask = tokens(batch, seq)["attention_mask"]
    return {"x": rng.standard_normal((batch, seq, 384)).astype(np.float32), "attention_mask": mask}


def run_encoder():
    model = CACHE + "/encoder.onnx"
    os.makedirs(CACHE, exist_ok=True)
    subprocess.run([RTX, "zoo", "export", "zoo:encoder", "--hidden", "384", "--heads", "12", "--ffn", "1536", "--layers", "6", "-o", model], check=True)
    run_minilm(model, "encoder", hidden_states)


def run_minilm(model=None, name="minilm-eager-legacy", feed=tokens):
    model, rows = model or minilm("eager-legacy"), []
    path = bundle(model, name, *(["--threads", A.threads] if name == "encoder" else []))
    for threads in map(int, A.threads.split(",")):
        ratios = []
        engines = {"rtx": ours(path, threads), "peer": peer(model, threads), "control": peer(model, threads)}
        for shape in A.shapes.split(","):
            batch, seq = map(int, shape.split("x"))
            r = race(engines, [feed(batch, seq) for _ in range(4)], engines["peer"], A.rounds)
            ratios.append(r["peer"]["ratio"])
            rows.append(dict(threads=threads, shape=shape, **r))
            print(f"{threads} threads {shape:>6}: rtx {r['rtx']['median_ms']:7.2f} ms, peer {r['peer']['median_ms']:7.2f} ms, peer/rtx "
                  f"{r['peer']['ratio']:.2f} [{r['peer']['low']:.2f}, {r['peer']['high']:.2f}], control {r['control']['ratio'] / r['peer']['ratio']:.2f}", flush=True)
        print(f"{threads} threads: geometric mean {geomean(ratios):.3f}, least {min(ratios):.2f}", flush=True)
    save(name, rows)


def run_exports():
    engines = {e: ours(bundle(minilm(e), "minilm-" + e), 2) for e in EXPORTS}
    r = race(engines, [tokens(1, 128) for _ in range(4)], peer(minilm("eager-legacy"), 2), A.rounds)
    for name, x in r.items():
        print(f"{name:13} {x['median_ms']:.2f} ms")
    print(f"slowest/fastest {max(x['ratio'] for x in r.values()) / min(x['ratio'] for x in r.values()):.3f}")
    save("exports", [r])


def run_zoo():
    import onnxruntime
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("gpt-block", "llama-block", "vit", "encoder"):
            for k in range(3):
                head, heads = random.choice((32, 64)), random.choice((6, 8, 10, 12))
                hidden, seq = head * heads, random.choice((17, 50, 100, 197))
                ffn, model, out = random.choice((2, 3, 4)) * hidden, f"{tmp}/{name}{k}.onnx", f"{tmp}/{name}{k}.rtxgc"
                subprocess.run([RTX, "zoo", "export", "zoo:" + name, "--hidden", str(hidden), "--heads", str(heads), "--ffn", str(ffn), "--layers", "2", "-o", model], check=True)
                subprocess.run([RTX, "compile", model, "-o", out], check=True, stderr=subprocess.DEVNULL)
                feeds = []
                for _ in range(3):
                    feed = {}
                    for i in onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs():
                        shape = tuple(d if isinstance(d, int) else (1 if j == 0 else seq) for j, d in enumerate(i.shape))
                        feed[i.name] = rng.standard_normal(shape).astype(np.float32) if "float" in i.type else np.ones(shape, np.int64)
                    feeds.append(feed)
                reference = peer(model, 2)
                r = race({"rtx": ours(out, 2), "peer": reference}, feeds, reference, A.rounds)
                ratios.append(r["peer"]["ratio"])
                rows.append(dict(model=name, hidden=hidden, heads=heads, ffn=ffn, seq=seq, **r))
                print(f"{name} {hidden}/{heads}/{ffn} n {seq}: rtx {r['rtx']['median_ms']:.2f} ms, peer/rtx {r['peer']['ratio']:.2f}", flush=True)
    print(f"geometric mean {geomean(ratios):.3f}, least {min(ratios):.2f}")
    save("zoo", rows)


START = {
    "rtx": "import rtx; t=T(); P=rtx.load({bundle!r}, threads=2); load=T()-t; y=P.run(f); first=T()-t; run=lambda: P.run(f)",
    "peer": "import onnxruntime as o; s=o.SessionOptions(); s.intra_op_num_threads=2; t=T(); S=o.InferenceSession({model!r}, s, "
            "providers=['CPUExecutionProvider']); load=T()-t; y=S.run(None, f); first=T()-t; run=lambda: S.run(None, f)",
}


def run_start():
    model = minilm("eager-legacy")
    path, rows = bundle(model, "minilm-eager-legacy"), {}
    with tempfile.TemporaryDirectory() as tmp:
        np.savez(tmp + "/f.npz", **tokens(1, 16))
        for name, code in START.items():
            text = (f"import numpy as np, time; T=time.perf_counter; f=dict(np.load({tmp + '/f.npz'!r}));" + code.format(bundle=path, model=model)
                    + "; run(); a=T(); run(); warm=T()-a; print(load, first, warm)")
            got = []
            for _ in range(11):
                a = time.perf_counter()
                out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ROOT + "/python"})
                got.append([*map(float, out.stdout.split()), time.perf_counter() - a])
            rows[name] = dict(zip(("load_ms", "first_ms", "warm_ms", "process_ms"), (float(x) * 1e3 for x in np.median(got, axis=0))))
        command = []
        for _ in range(11):
            a = time.perf_counter()
            subprocess.run([RTX, "run", path], capture_output=True, check=True)
            command.append(time.perf_counter() - a)
        rows["rtx run (open and check only)"] = dict(process_ms=float(np.median(command) * 1e3))
    for name, r in rows.items():
        print(name, ", ".join(f"{k} {v:.1f}" for k, v in r.items()))
    save("start", rows)


ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("what", choices=("minilm", "encoder", "exports", "zoo", "start"))
ap.add_argument("--threads", default="1,2")
ap.add_argument("--shapes", default="1x16,1x32,1x64,1x128,1x256,8x32,8x128")
ap.add_argument("--rounds", type=int, default=8)
ap.add_argument("--json")
A = ap.parse_args()
{"minilm": run_minilm, "encoder": run_encoder, "exports": run_exports, "zoo": run_zoo, "start": run_start}[A.what]()
