"""The devices of this machine and the way through compile, open and run that every device test takes.

A target is a device and an environment under which a bundle is opened: for the CPU one for each instruction level. One bundle
serves all. A new device is a row of targets().
"""
import json
import os
import pathlib
import subprocess
import tempfile

from built import built
import rtx

LEVELS = ("v2", "v3", "v4")
THREADS = (1, 3)
SHM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def rtx_tool():
    return built("rtx")


def cpu_level():
    info = json.loads(subprocess.run([rtx_tool(), "info", "--json"], capture_output=True, text=True, check=True,
                                     env={k: v for k, v in os.environ.items() if k != "RTX_ISA"}).stdout)
    return info["cpu_isa"]


def targets():
    """[(name, environment)], and the names that this machine cannot run."""
    have = LEVELS.index(cpu_level())
    return [(f"cpu-{v}", {"RTX_ISA": v}) for v in LEVELS[:have + 1]], [f"cpu-{v}" for v in LEVELS[have + 1:]]


class under:
    def __init__(self, env):
        self.env = env

    def __enter__(self):
        self.old = {k: os.environ.get(k) for k in self.env}
        os.environ.update(self.env)

    def __exit__(self, *_):
        for k, v in self.old.items():
            if v is None:
                del os.environ[k]
            else:
                os.environ[k] = v


class Compiled:
    """A graph text, compiled without tuning unless options say otherwise, opened on every target."""

    def __init__(self, text, **options):
        self.targets, _ = targets_cached()
        with tempfile.TemporaryDirectory(prefix="rtx-device-", dir=SHM) as folder:
            model, out = pathlib.Path(folder, "g.rtx"), pathlib.Path(folder, "g.rtxgc")
            model.write_text(text)
            with rtx.compile(model, out=out, **{"tune": "off", **options}) as program:
                self.report = program.report
            self.programs = {}
            for name, env in self.targets:
                with under(env):
                    self.programs[name] = rtx.load(out, threads=1)

    def run(self, inputs, threads=THREADS):
        """{target: [outputs]}; every thread count must give the same bits."""
        results = {}
        for name, program in self.programs.items():
            feed = {port.name: x for port, x in zip(program.inputs, inputs)}
            first = None
            for t in threads:
                got = list(program.run(feed, threads=t).values())
                if first is None:
                    first = got
                for k, (a, b) in enumerate(zip(first, got)):
                    assert a.tobytes() == b.tobytes(), f"{name}: output {k} differs between {threads[0]} and {t} threads"
            results[name] = first
        return results

    def close(self):
        for program in self.programs.values():
            program.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_targets = None


def targets_cached():
    global _targets
    if _targets is None:
        _targets = targets()
    return _targets
