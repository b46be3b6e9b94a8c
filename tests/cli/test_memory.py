"""Want of memory: each allocation of a command fails once. The command says so and exits 1, or does without; it never crashes, hangs or
leaves a file behind. --full walks through all allocations of each command, else a sample is taken."""
import os
import shutil
import subprocess

import numpy as np
import pytest
from built import BUILD

FULL = "RTX_TEST_FULL" in os.environ
SAMPLE = 25
BAD = os.fsdecode(b"\xff")
MODEL = "zoo:encoder,hidden=16,heads=2,ffn=32,layers=1"
COMMANDS = {  # command: the file it makes
    "zoo export " + MODEL + " -o out.onnx": "out.onnx",
    "compile m.onnx --tune off -o out.rtxgc": "out.rtxgc",
    "run m.rtxgc --input x=x.npy --input attention_mask=mask.npy --output out --threads 2": "out",
    "run m.rtxgc": None,
    "inspect m.rtxgc --json": None,
    "explain m.rtxgc": None,
    "compare m.onnx m.rtxgc": None,
    "opt --pass=fold m.rtx": None,
    "cache stat --cache none": None,
    "info --json": None,
    f"cache stat --cache c{BAD} --json": None,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    f = tmp_path_factory.mktemp("memory")
    for words in ("zoo export " + MODEL + " -o m.onnx", "compile m.onnx --tune off -o m.rtxgc"):
        subprocess.run([BUILD / "rtx", *words.split()], cwd=f, check=True, capture_output=True)
    (f / "m.rtx").write_text('sym n 1..64\nfunc @f(%0 "x": f32[n,8]) {\n  %1 = softmax %0 : f32[n,8]\n  return %1 "y"\n}\n')
    np.save(f / "x.npy", np.random.default_rng(3).standard_normal((1, 4, 16), dtype=np.float32))
    np.save(f / "mask.npy", np.ones((1, 4), np.int64))
    return f


def call(folder, command, **env):
    return subprocess.run([BUILD / "rtx-memory", *command.split()], cwd=folder, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **env})


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_allocation_may_fail(folder, command):
    made = COMMANDS[command] and folder / COMMANDS[command]
    good = call(folder, command, RTX_TEST_COUNT=str(folder / "count"))
    assert good.returncode == 0, good.stderr
    total = int((folder / "count").read_text())
    steps = range(total) if FULL else sorted({i * total // SAMPLE for i in range(SAMPLE)})
    print(f"{command}: {len(steps)} of {total} allocations")
    for at in steps:
        if made:
            remove(made)
        before = sorted(p.name for p in folder.iterdir() if p != made)
        r = call(folder, command, RTX_TEST_FAIL_AT=str(at), RTX_TEST_COUNT=str(folder / "count"))
        assert r.returncode in (0, 1), (at, r.returncode, r.stderr)
        assert r.returncode == 0 or "memory" in r.stderr, (at, r.stderr)
        assert sorted(p.name for p in folder.iterdir() if p != made) == before, at
        if made and made.is_file() and r.returncode == 1:
            assert False, f"{at}: {made.name} was made by a command that failed"
        if made and made.suffix == ".rtxgc" and r.returncode == 0:
            subprocess.run([BUILD / "rtx", "run", made, "--quiet"], cwd=folder, check=True, capture_output=True)
