"""Names of files and of values: links, permissions, lengths, bytes that are no UTF-8 and bytes that drive a terminal."""
import json
import os
import re
import stat
import subprocess

import numpy as np
import pytest
from built import BUILD

MODEL = "zoo:mlp,in=8,hidden=16,out=4,layers=2"
COMPILE = ("compile", MODEL, "--tune", "off", "--threads", "1")
BAD = b"o\xff"
SHOWN = "o\N{REPLACEMENT CHARACTER}"
LONG = "n" * 300
REPRO = ("rtx-repro 1\nvariant cpu/row WORK=1024\nsizes 37\nproblem 1\nsyms 1 free 0\nstrides 33 1 ; 33 1 ;\n"
         'func @region(%0 "i0": f32[s0,33]) {\n  %1 = softmax %0 : f32[s0,33]\n  return %1 "o0"\n}\n')


def rtx(folder, *words, exit=0, **env):
    r = subprocess.run([BUILD / "rtx", *words], cwd=folder, capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
                       env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **env})
    assert r.returncode == exit, r.stderr
    return r.stdout if exit == 0 else r.stderr.decode(errors="replace")


def said(folder, *words, **env):
    return json.loads(rtx(folder, *words, "--json", **env).decode())


@pytest.fixture
def bundle(tmp_path):
    rtx(tmp_path, *COMPILE, "-o", "m.rtxgc")
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    return tmp_path / "m.rtxgc"


# ---- links and permissions ----

def test_a_link_stays_one_and_permissions_stay(tmp_path):
    folder, link = tmp_path / "real", tmp_path / "link.rtxgc"
    folder.mkdir()
    (folder / "m.rtxgc").write_text("old")
    (folder / "m.rtxgc").chmod(0o640)
    link.symlink_to("real/m.rtxgc")
    rtx(tmp_path, *COMPILE, "-o", link)
    assert link.is_symlink() and link.stat().st_size > 1000
    assert stat.S_IMODE((folder / "m.rtxgc").stat().st_mode) == 0o640
    assert [p.name for p in folder.iterdir()] == ["m.rtxgc"]


def test_a_link_to_nothing(tmp_path):
    (tmp_path / "link").symlink_to("nothing")
    assert "is a link to what cannot be found" in rtx(tmp_path, *COMPILE, "-o", "link", exit=1)
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


# ---- names that cannot be written, known before the work ----

@pytest.mark.parametrize("out,exit,text", [
    ("", 2, "name is empty"), (LONG, 1, "has 300 bytes; at most"), ("./" + LONG, 1, "has 300 bytes; at most"),
    ("n/" * 3000 + "n", 1, "has 6001 bytes; at most 4095"), ("absent/" * 20 + "n", 1, "cannot make a file in folder")])
def test_outputs_that_cannot_be(tmp_path, out, exit, text):
    for words in ("compile", "nothing.onnx", "-o", out), ("zoo", "export", MODEL, "-o", out), ("opt", "nothing.rtx", "-o", out):
        assert text in rtx(tmp_path, *words, exit=exit)
    assert not list(tmp_path.iterdir())


def test_long_paths(tmp_path):
    deep = tmp_path.joinpath(*["d" * 200] * 7)
    deep.mkdir(parents=True)
    rtx(tmp_path, *COMPILE, "-o", deep / "m.rtxgc")
    (deep / "r.repro").write_text(REPRO)
    assert "K_NAME" in said(tmp_path, "repro", deep / "r.repro", "--source")["source"]
    assert "set it to a folder of at most" in rtx(tmp_path, *COMPILE, "-o", "-", TMPDIR=str(deep), exit=1)


def test_long_cache(tmp_path):
    fits, longer = ("/".join(["c" * 199, "c" * n]) for n in (199, 200))
    assert said(tmp_path, "cache", "stat", "--cache", fits)["path"] == fits
    for words in COMPILE, ("cache", "stat"), ("cache", "gc"), ("info",), ("profile",), ("repro", "0" * 32):
        assert "--cache names a folder of 400 bytes; at most 399" in rtx(tmp_path, *words, "--cache", longer, exit=1)


def test_outputs_of_a_run_go_to_a_folder(bundle):
    assert "./- is a folder" in rtx(bundle.parent, "run", bundle, "--input", "x=x.npy", "--output", "-", exit=2)
    assert not (bundle.parent / "-").exists()
    rtx(bundle.parent, "run", bundle, "--input", "x=x.npy", "--output", "./-")
    assert (bundle.parent / "-" / "y.npy").exists()


# ---- bytes that are no UTF-8 ----

def test_json_of_file_names(bundle):
    folder = bundle.parent
    assert said(folder, "zoo", "export", MODEL, "-o", BAD)["out"] == SHOWN
    assert said(folder, *COMPILE, "-o", BAD)["out"] == SHOWN
    assert said(folder, "run", bundle, "--input", "x=x.npy", "--output", BAD + b".d")["outputs"][0]["file"] == SHOWN + ".d/y.npy"
    cache = os.fsdecode(bytes(folder) + b"/" + BAD)
    assert said(folder, "cache", "stat", XDG_CACHE_HOME=cache)["path"] == f"{folder}/{SHOWN}/rtx"
    info = said(folder, "info", XDG_CACHE_HOME=cache)
    assert info["cache"] == f"{folder}/{SHOWN}/rtx"
    assert {"XDG_CACHE_HOME": f"{folder}/{SHOWN}"}.items() <= {e["name"]: e["value"] for e in info["environment"]}.items()


@pytest.mark.parametrize("raw,text", [  # too long a form, half of a pair, above the last, a cut character, and good ones
    (b"\xc0\xaf", "??"), (b"\xe0\x80\xaf", "???"), (b"\xed\xa0\x80", "???"), (b"\xf4\x90\x80\x80", "????"), (b"a\xe2\x82", "a??"),
    (b"\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac", "\N{GRINNING FACE}\xe9\N{EURO SIGN}")])
def test_json_of_odd_bytes(tmp_path, raw, text):
    assert said(tmp_path, "zoo", "export", MODEL, "-o", b"m" + raw)["out"] == "m" + text.replace("?", "\N{REPLACEMENT CHARACTER}")


def test_json_of_a_repro(tmp_path):
    (tmp_path / "r.repro").write_bytes(REPRO.replace("problem 1", "expect accepted caf\xe9\nproblem 1").encode("latin-1"))
    assert said(tmp_path, "repro", "r.repro")["expect"] == "accepted caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", ['%0 "\xe9": f32[n]', '%0 "x": f32[\xe9]'])
def test_ir_text_that_is_no_utf8(tmp_path, text):
    (tmp_path / "m.rtx").write_bytes(f'sym n 1..64\nfunc @f({text}) {{\n  %1 = add %0 %0 : f32[n]\n  return %1 "y"\n}}\n'.encode("latin-1"))
    rtx(tmp_path, "compile", "m.rtx", "--tune", "off", "-o", "m.rtxgc", exit=1)
    assert not (tmp_path / "m.rtxgc").exists()


def test_long_names_of_nodes_are_cut_between_characters(tmp_path):
    onnx = pytest.importorskip("onnx")
    h, f = onnx.helper, onnx.TensorProto.FLOAT
    ends = [h.make_tensor_value_info(n, f, [4, 8]) for n in "xy"]
    node = h.make_node("Softmax", ["x"], ["y"], name="n" + "\xe9" * 200)
    m = h.make_model(h.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.save(m, tmp_path / "m.onnx")
    rtx(tmp_path, "compile", "m.onnx", "--tune", "off", "-o", "m.rtxgc")
    assert {k["step"] for k in said(tmp_path, "explain", "m.rtxgc")["kernels"]} == {"n" + "\xe9" * 99}


# ---- bytes that drive a terminal ----

def test_control_bytes_stay_inside(tmp_path):
    (tmp_path / "m.rtx").write_text('sym n 1..64\nfunc @f(%0 "x\x1b[31m": f32[n,8]) {\n  %1 = softmax %0 : f32[n,8]\n'
                                    '  return %1 "y\x1b]0;\x07"\n}\n')
    rtx(tmp_path, "compile", "m.rtx", "--tune", "off", "-o", "m.rtxgc")
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    feed = ("run", "m.rtxgc", "--input", "x\x1b[31m=x.npy")
    for words in ("run", "m.rtxgc"), feed, ("inspect", "m.rtxgc"), ("explain", "m.rtxgc", "--all"), ("compare", "m.rtx", "m.rtxgc"):
        out = rtx(tmp_path, *words).decode()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out), out
    assert b"x [31m" in rtx(tmp_path, "run", "m.rtxgc")
    assert said(tmp_path, "run", "m.rtxgc")["inputs"][0]["name"] == "x\x1b[31m"
