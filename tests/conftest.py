"""Paths that several test folders share, and random data that depends on the test alone."""
import sys
import zlib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
for folder in (TESTS / "conform", TESTS.parent / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
import built  # noqa: E402, F401 # before any test imports rtx


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: compares times; ./dev test runs it with no other test beside it")


@pytest.fixture(autouse=True)
def own_random_data(request):
    """Not on the tests that ran before it in its process, which differ from run to run."""
    cases = sys.modules.get("op_cases")
    if cases:
        cases.rng.bit_generator.state = cases.np.random.default_rng(zlib.crc32(request.node.nodeid.encode())).bit_generator.state


def pytest_terminal_summary(terminalreporter):
    """What passing tests print: counts, and levels that were not run."""
    for report in terminalreporter.getreports("passed"):
        for line in report.capstdout.splitlines() if report.when == "call" else ():
            terminalreporter.write_line(f"{report.nodeid.rsplit('/', 1)[-1]}: {line}")
