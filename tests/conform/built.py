"""The build under test: build/, or the folder that RTX_BUILD names. The Python package takes its library from there, too."""
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RTX_BUILD", ROOT / "build"))
os.environ.setdefault("RTX_LIB", str(BUILD / "librtx.so"))


def built(name):
    """The path of one of its programs."""
    path = BUILD / name
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return str(path)
