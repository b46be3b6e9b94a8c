"""The reference model end to end: its four exports against ONNX Runtime on the same file, padded, fully masked, with a NaN
weight, at every length class, and the neighbours that its embeddings give. Tolerance 1e-5 norm-wise (docs/numerics.md)."""
import os
import re
import subprocess

import numpy as np
import pytest
from built import built

import minilm_files
import rtx

ort = pytest.importorskip("onnxruntime")
HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def models():
    try:
        return minilm_files.files()
    except minilm_files.Missing as why:
        pytest.skip(str(why))


def peer(path):
    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)[0]


def feed(rng, batch, seq, pad=False, all_masked=False):
    ids = rng.integers(1000, 28000, (batch, seq))
    mask = np.ones_like(ids)
    if pad:
        for row in range(batch):
            mask[row, rng.integers(max(1, seq // 3), seq + 1):] = 0
    if all_masked:
        mask[0] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def assert_close(want, got):
    assert want.shape == got.shape and want.dtype == got.dtype
    assert (np.isnan(want) == np.isnan(got)).all(), "NaN at other places"
    want, got = np.nan_to_num(want.astype(np.float64)), np.nan_to_num(got.astype(np.float64))
    error = np.linalg.norm(want - got) / (np.linalg.norm(want) + 1e-30)
    assert error <= TOLERANCE, f"error {error:.2e}"


def raised(kind):
    """The raised graph, one line a node in the order in which the output needs them, so that only what is computed counts.
    Left out is in what the exports may differ: what a fully masked row yields (the number that hides a key), whether NaN becomes
    0, and the digits of attention's scale that depend on whether one fp32 factor or two stand in the file."""
    text = subprocess.run([built("opt"), "--pass=fold,raise,layout", minilm_files.model(kind)], check=True, capture_output=True,
                          text=True).stdout
    nodes = dict(re.findall(r'(%\d+) ("[^"]*": [^ ]*)[,)]', text) + re.findall(r"^  (%\d+) = (.*)$", text, re.M))
    lines, number = [], {}

    def visit(label):
        if label not in number:
            line = re.sub(r"%\d+", lambda m: visit(m.group()), nodes[label])
            if line.startswith("attention"):
                line = re.sub(r"scale=(\S+)", lambda m: f"scale={float(m.group(1)):.6g}", line)
                line = re.sub(r" nan_zero=\d", "", line)
            if line in ("const f32[] {-inf}", "const f32[] {-3.40282347e+38}"):
                line = "const f32[] {hides a key}"
            number[label] = f"%{len(lines)}"
            lines.append(line)
        return number[label]

    for label in re.findall(r"%\d+", text[text.index("\n  return "):]):
        visit(label)
    return [line for line in text.splitlines() if line.startswith("sym ")] + lines


def test_exports_reach_the_same_graph(models):
    first, *others = minilm_files.EXPORTS
    want = raised(first)
    assert [sum(line.startswith(op + " ") for line in want) for op in ("attention", "layernorm", "gelu", "dot")] == [6, 13, 6, 24]
    for kind in others:
        assert raised(kind) == want, kind


def test_raised_exports_keep_their_values(models):
    r = subprocess.run([built("test_pass_models")], env={**os.environ, "RTX_TEST_MINILM": models}, capture_output=True, text=True)
    print("\n".join(line for line in r.stdout.splitlines() if "difference" in line))
    assert r.returncode == 0 and "SKIPPED" not in r.stdout + r.stderr, r.stdout + r.stderr


@pytest.mark.parametrize("kind", minilm_files.EXPORTS)
def test_export(models, kind):
    path, rng = minilm_files.model(kind), np.random.default_rng(11)
    program, reference = rtx.compile(path, tune="off"), peer(path)
    for batch, seq in ((1, 1), (1, 2), (1, 3), (1, 17), (2, 16), (2, 33), (8, 9), (16, 5), (1, 129), (1, 512)):
        x = feed(rng, batch, seq, pad=batch > 1)
        assert_close(reference(x), program.run(x)["last_hidden_state"])
    x = feed(rng, 2, 12, pad=True, all_masked=True)
    assert_close(reference(x), program.run(x)["last_hidden_state"])


def test_every_length_class(models):
    path, rng = minilm_files.model("eager-legacy"), np.random.default_rng(12)
    program, reference = rtx.compile(path, tune="off"), peer(path)
    step = 1 if os.environ.get("RTX_TEST_FULL") else 37
    for seq in sorted({*range(1, 513, step), 511, 512}):
        x = feed(rng, 1, seq)
        assert_close(reference(x), program.run(x)["last_hidden_state"])


def test_length_beyond_the_model(models):
    program = rtx.compile(minilm_files.model("eager-dynamo"), tune="off")
    with pytest.raises(ValueError, match="512"):
        program.run(feed(np.random.default_rng(1), 1, 513))


@pytest.mark.parametrize("kind", minilm_files.EXPORTS)
def test_nan_weight(models, kind, tmp_path):
    import onnx
    from onnx import numpy_helper
    model = onnx.load(minilm_files.model(kind))
    weight = next((i for i in model.graph.initializer if "query" in i.name and list(i.dims) == [384]), None)
    weight = weight or next(i for i in model.graph.initializer if list(i.dims) == [384])
    value = numpy_helper.to_array(weight).copy()
    value[0] = np.nan
    weight.CopyFrom(numpy_helper.from_array(value, weight.name))
    path = str(tmp_path / "nan.onnx")
    onnx.save(model, path)
    x = feed(np.random.default_rng(3), 2, 9)
    assert_close(peer(path)(x), rtx.compile(path, tune="off").run(x)["last_hidden_state"])


def test_same_neighbours(models):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(models + "/tokenizer.json")
    tokenizer.enable_padding()
    sentences = open(HERE + "/sentences.txt").read().splitlines()
    assert len(sentences) >= 100
    path = minilm_files.model("sdpa-dynamo")
    program, reference = rtx.compile(path, tune="off"), peer(path)

    def embed(run):
        rows = []
        for at in range(0, len(sentences), 16):
            batch = tokenizer.encode_batch(sentences[at:at + 16])
            x = {"input_ids": np.array([e.ids for e in batch]), "attention_mask": np.array([e.attention_mask for e in batch]),
                 "token_type_ids": np.array([e.type_ids for e in batch])}
            weight = x["attention_mask"][..., None].astype(np.float32)
            pooled = (run(x) * weight).sum(1) / weight.sum(1)
            rows.append(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))
        return np.concatenate(rows)

    def nearest(vectors):
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -1)
        return similarity.argmax(1)

    ours, theirs = nearest(embed(lambda x: program.run(x)["last_hidden_state"])), nearest(embed(reference))
    assert (ours == theirs).all()
