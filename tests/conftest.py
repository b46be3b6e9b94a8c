"""Paths that several test folders share."""
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
for folder in (TESTS / "conform", TESTS.parent / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
