"""Paths that several test folders share."""
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
for folder in (TESTS / "conform", TESTS.parent / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def pytest_terminal_summary(terminalreporter):
    """What passing tests print: counts, and levels that were not run."""
    for report in terminalreporter.getreports("passed"):
        for line in report.capstdout.splitlines() if report.when == "call" else ():
            terminalreporter.write_line(f"{report.nodeid.rsplit('/', 1)[-1]}: {line}")
