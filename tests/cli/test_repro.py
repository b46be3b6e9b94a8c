"""Candidates that are kept forever: each file of tests/repro gets the verdict that its line `expect` demands."""
import json
import subprocess

import pytest
from built import BUILD, ROOT

FILES = sorted((ROOT / "tests/repro").glob("*.repro"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_verdict(file):
    r = subprocess.run([BUILD / "rtx", "repro", file, "--json"], capture_output=True, text=True, timeout=120)
    assert r.returncode in (0, 1), r.stderr
    said = json.loads(r.stdout)
    verdict, _, reason = said["expect"].partition(" ")
    assert said["verdict"] == verdict == ("rejected" if r.returncode else "accepted"), said
    assert reason in said["reason"]


def test_there_are_files():
    assert len(FILES) >= 6
