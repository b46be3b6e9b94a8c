#!/usr/bin/env python3
"""What passing unit tests say, which meson keeps to itself: counts, survivors, levels not run, and each skip with its reason.
test_report.py [--skips] BUILD reads BUILD/meson-logs/testlog.json; --skips keeps to what was not run."""
import json
import re
import sys
from pathlib import Path

FRAME = re.compile(r"\[[ =\-A-Z]{10}\]| *\d+ SKIPPED TEST")  # cmocka's own lines
NOT_RUN = re.compile(r"\[  SKIPPED \] (?!\d)|skipped|not run|left out")


def lines_of(test, skips):
    seen = set()
    for line in (test.get("stdout") or "").splitlines() + (test.get("stderr") or "").splitlines():
        line = line.rstrip()
        not_run = NOT_RUN.search(line)
        if line and line not in seen and (not_run or not (skips or FRAME.match(line))):
            seen.add(line)
            yield line


def main():
    *flags, build = sys.argv[1:]
    log = Path(build) / "meson-logs/testlog.json"
    if not log.exists():
        print(f"{log} is not there: no unit test ran")
        return 1
    for test in map(json.loads, log.read_text().splitlines()):
        name = test["name"].split(" / ")[-1]
        if test["result"] == "SKIP":
            print(f"{name}: skipped")
        for line in lines_of(test, "--skips" in flags):
            print(f"{name}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
