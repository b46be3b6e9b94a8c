"""The build under test: build/, or the folder that RTX_BUILD names. The Python package takes its library from there, too."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RTX_BUILD", ROOT / "build"))
os.environ.setdefault("RTX_LIB", str(BUILD / "librtx.so"))


def built(name):
    """The path of one of its programs."""
    path = BUILD / name
    assert path.exists(), f"{path} is not built: ./dev build"  # a skip would pass without testing anything
    return str(path)
