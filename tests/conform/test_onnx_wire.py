"""Our wire reader against protobuf-c with ONNX's own schema: equal dumps of every file that we accept.

The schema comes from Debian's libonnx-dev or from the onnx package, and is compiled here; without it the test says so."""
import os
import pathlib
import random
import re
import shutil
import subprocess

import pytest
from built import ROOT, built

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pbc")
    schemas = [pathlib.Path("/usr/include/onnx/onnx.proto"), pathlib.Path(onnx.__file__).parent / "onnx.proto"]
    schema = next((s for s in schemas if s.exists()), None)
    if not schema or not shutil.which("protoc-c"):
        pytest.skip("needs protoc-c and onnx.proto")
    shutil.copy(schema, folder / "onnx.proto")
    subprocess.run(["protoc-c", "--c_out=.", "onnx.proto"], cwd=folder, check=True)
    subprocess.run(["cc", "-O1", "-I.", f"-I{ROOT}/tests/tools", "-o", "dump", "onnx.pb-c.c", ROOT / "tests/tools/wire_pbc_main.c",
                    "-lprotobuf-c"], cwd=folder, check=True)
    return str(folder / "dump")


def dumps(tool, files):
    text = subprocess.run([tool, *map(str, files)], capture_output=True, check=True).stdout.decode("latin1")
    parts = re.split(r"(?m)^== .*\n", text)[1:]
    return [p.rstrip("\n").rsplit("\n", 1) for p in parts]


def node_models():
    from onnx.backend.test.loader import load_model_tests
    return [t.model.SerializeToString() for t in load_model_tests(kind="node") if t.model is not None]


def write(folder, blobs):
    files = []
    for i, b in enumerate(blobs):
        files.append(folder / f"{i}.onnx")
        files[-1].write_bytes(b)
    return files


def test_whole_files(theirs, tmp_path):
    files = write(tmp_path, node_models()) + sorted((ROOT / "tests/fuzz/corpus/onnx").iterdir())
    files += sorted(pathlib.Path(os.environ.get("RTX_TEST_MINILM", ROOT / "build/minilm")).glob("*.onnx"))
    for f, a, b in zip(files, dumps(built("wire_dump"), files), dumps(theirs, files), strict=True):
        assert a == b, f
    print(f"{len(files)} files alike")


def test_damaged_files(theirs, tmp_path):
    """What both accept after damage they read alike. Ours may accept more: it never opens what nobody reads."""
    rng = random.Random(1)
    blobs, models = [], [m for m in node_models() if len(m) < 2000]
    for _ in range(4000):
        b = bytearray(rng.choice(models))
        for _ in range(rng.randint(1, 3)):
            b[rng.randrange(len(b))] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        if rng.random() < 0.2:
            del b[rng.randrange(len(b)):]
        blobs.append(bytes(b))
    files = write(tmp_path, blobs)
    both = only_ours = 0
    for f, a, b in zip(files, dumps(built("wire_dump"), files), dumps(theirs, files), strict=True):
        if a[1] == b[1] == "accepted":
            assert a == b, f
            both += 1
        only_ours += a[1] == "accepted" != b[1]
    print(f"{both} of {len(files)} damaged files accepted by both, all alike; {only_ours} by ours alone")
    assert both > 0.2 * len(files)
