"""The whole chain in trouble: what must be survived with one warning and a right result, and what must end with an error and
leave nothing. Everything goes through the rtx command; results are compared with NumPy.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from built import BUILD

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "device"))
from device import LEVELS, cpu_level, rtx_tool  # noqa: E402

ROOT_USER = os.geteuid() == 0
NOBODY = 65534
WEIGHTS = (np.arange(48 * 40) * 37 % 23 - 11).astype(np.float32).reshape(48, 40) / 8


def model_text(weights=WEIGHTS):
    k, n = weights.shape
    data = np.ascontiguousarray(weights).tobytes().hex()
    return (f'sym n 0..1024\nfunc @f(%0 "x": f32[n,{k}]) {{\n  %1 = const f32[{k},{n}] hex"{data}"\n  %2 = dot %0 %1\n'
            f'  %3 = tanh %2\n  %4 = reduce_sum %3 {{axes=[1]}}\n  return %2 "y", %3 "t", %4 "s"\n}}\n')


class Place:
    """A folder with a model, an input, a cache, and the means to compile and to check."""

    def __init__(self, folder, weights=WEIGHTS, cache=None):
        self.folder, self.weights = folder, weights
        self.cache, self.out = folder / "cache", folder / "f.rtxgc"
        if cache:
            shutil.copytree(cache, self.cache)
        (folder / "f.rtx").write_text(model_text(weights))
        (folder / "tmp").mkdir()
        self.x = np.random.default_rng(1).standard_normal((17, weights.shape[0])).astype(np.float32)
        np.save(folder / "x.npy", self.x)

    def without_cache(self):
        shutil.rmtree(self.cache)

    def env(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("RTX_")}
        env.update(RTX_WORKER=str(BUILD / "rtx-worker"), TMPDIR=str(self.folder / "tmp"), NO_COLOR="1", HOME=str(self.folder))
        return {**env, **more}

    def command(self, tune="quick", out=None, budget="4"):
        args = [rtx_tool(), "compile", "f.rtx", "-o", str(out or self.out), "--tune", tune, "--quiet", "--threads", "1", "--bucket", "n=16"]
        return args + (["--budget", budget, "--cache", str(self.cache)] if tune != "off" else [])

    def start(self, tune="quick", out=None, env=None, budget="4", **how):
        return subprocess.Popen(self.command(tune, out, budget), cwd=self.folder, env=self.env(**(env or {})), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **how)

    def compile(self, tune="quick", out=None, env=None, budget="4", **how):
        p = self.start(tune, out, env, budget, **how)
        stdout, stderr = p.communicate(timeout=120)
        return p.returncode, stdout, stderr

    def right(self, out=None, **env):
        folder = self.folder / "got"
        shutil.rmtree(folder, ignore_errors=True)
        r = subprocess.run([rtx_tool(), "run", str(out or self.out), "--input", "x=x.npy", "--output", str(folder)], cwd=self.folder,
                           env=self.env(**env), capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        y = self.x.astype(np.float64) @ self.weights.astype(np.float64)
        for name, want in (("y", y), ("t", np.tanh(y)), ("s", np.tanh(y).sum(1))):
            np.testing.assert_allclose(np.load(folder / f"{name}.npy"), want, rtol=1e-4, atol=1e-4, equal_nan=True)

    def left(self):
        """What a compilation that failed must not leave."""
        return sorted(p.name for p in self.folder.iterdir() if p.name.startswith(".rtx") or p.suffix == ".rtxgc") + \
            sorted(p.name for p in (self.folder / "tmp").iterdir())

    def bad_entries(self):
        r = subprocess.run([rtx_tool(), "cache", "verify", "--cache", str(self.cache), "--json"], capture_output=True, text=True,
                           env=self.env())
        return json.loads(r.stdout)["bad"]


@pytest.fixture(scope="session")
def profiled(tmp_path_factory):
    """A cache that holds the facts of this machine and nothing else; they take seconds to measure."""
    cache = tmp_path_factory.mktemp("profiled") / "cache"
    subprocess.run([rtx_tool(), "profile", "--cache", str(cache)], capture_output=True, check=True)
    return cache


@pytest.fixture
def place(tmp_path, profiled):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: nothing to tune with")
    return Place(tmp_path, cache=profiled)


def warnings(stderr):
    return [line for line in stderr.splitlines() if line.strip()]


def children(pid):
    """Live descendants of a process: {pid: command name}."""
    found, parents = {}, {}
    for p in Path("/proc").iterdir():
        if p.name.isdigit():
            try:
                stat = (p / "stat").read_text()
            except OSError:
                continue
            name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
            if rest[0] != "Z":
                parents[int(p.name)] = (int(rest[1]), name)
    grown = True
    family = {pid}
    while grown:
        grown = False
        for k, (parent, name) in parents.items():
            if parent in family and k not in family:
                family.add(k)
                found[k] = name
                grown = True
    return found


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.005)
    return None


def workers(pid):
    return [k for k, name in children(pid).items() if name.startswith("rtx-worker")]


def measuring(pid):
    """Workers that run candidates, not those that watch a compiler."""
    try:
        return [k for k in workers(pid) if b"--exec" not in Path(f"/proc/{k}/cmdline").read_bytes()]
    except FileNotFoundError:  # one has just ended
        return []


def gone(pids):
    return wait_for(lambda: all(not Path(f"/proc/{p}").exists() or " Z " in Path(f"/proc/{p}/stat").read_text() for p in pids), 5)


# ---- survived: exit 0, a right result ----

def test_two_processes_tune_on_one_cache(place):
    a, b = place.start(out=place.folder / "a.rtxgc"), place.start(out=place.folder / "b.rtxgc")
    for p in (a, b):
        _, stderr = p.communicate(timeout=120)
        assert p.returncode == 0, stderr
        assert not warnings(stderr), stderr
    place.right(place.folder / "a.rtxgc")
    place.right(place.folder / "b.rtxgc")
    assert place.bad_entries() == 0


def test_worker_killed(place, profiled):
    for _ in range(3):  # one that was about to end is not missed
        place.without_cache()
        shutil.copytree(profiled, place.cache)
        p = place.start()
        found = wait_for(lambda: measuring(p.pid))
        assert found, "no worker was seen"
        os.kill(found[0], signal.SIGKILL)
        stdout, stderr = p.communicate(timeout=120)
        assert p.returncode == 0, stderr
        if warnings(stderr):
            break
    assert len(warnings(stderr)) == 1 and "killed" in stderr, stderr
    place.right()
    assert place.bad_entries() == 0


@pytest.mark.parametrize("does", ["exec sleep 600", "exit 3", "kill -SEGV $$"])
def test_a_worker_that_is_of_no_use(place, does):
    """It watches compilers, but gives no answer about the machine and about candidates."""
    place.without_cache()
    worker = script(place, "rtx-worker", f'#!/bin/sh\ncase $* in *--exec*) exec {BUILD}/rtx-worker "$@";; esac\n{does}\n')
    code, _, stderr = place.compile(env={"RTX_WORKER": worker})
    assert code == 0, stderr
    assert len(warnings(stderr)) == 1 and "rtx-worker: " in stderr and ("no answer" in stderr or "crashed" in stderr), stderr
    place.right()


def test_every_worker_killed(place):
    """As if the machine killed them all: what was measured is kept, the rest is precompiled."""
    p, killed = place.start(), 0
    while p.poll() is None:
        for k in workers(p.pid):
            try:
                os.kill(k, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        time.sleep(0.002)
    stderr = p.stderr.read()
    assert p.returncode == 0, stderr
    assert killed > 0
    assert len(warnings(stderr)) == 1, stderr
    place.right()


def test_rtx_killed_then_the_next_run_is_right(place):
    p = place.start()
    found = wait_for(lambda: workers(p.pid))
    assert found
    time.sleep(0.3)
    p.kill()
    p.communicate()
    assert gone(found), "workers outlive rtx"
    assert not place.out.exists()
    code, _, stderr = place.compile()
    assert code == 0 and not warnings(stderr), stderr
    place.right()
    assert place.bad_entries() == 0


def script(place, name, text):
    path = place.folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("kind", ["hangs", "absent", "fails", "writes rubbish"])
def test_compiler_in_trouble(place, kind):
    cc = {"hangs": lambda: script(place, "slowcc", "#!/bin/sh\ncase $* in *--version*|*-dumpversion*) exec cc \"$@\";; esac\nexec sleep 600\n"),
          "absent": lambda: str(place.folder / "nothing"),
          "fails": lambda: script(place, "badcc", "#!/bin/sh\ncase $* in *--version*) exec cc \"$@\";; esac\necho no >&2\nexit 1\n"),
          "writes rubbish": lambda: script(place, "rubbishcc", "#!/bin/sh\ncase $* in *--version*) exec cc \"$@\";; esac\n"
                                           "for a; do [ \"$o\" = 1 ] && echo rubbish >\"$a\"; o=0; [ \"$a\" = -o ] && o=1; done\nexit 0\n")}[kind]()
    start = time.monotonic()
    code, stdout, stderr = place.compile(env={"RTX_CC": cc})
    assert code == 0, stderr
    assert time.monotonic() - start < 60
    assert len(warnings(stderr)) == 1, stderr
    place.right()
    assert not [c for c in (place.folder / "tmp").iterdir()], "scratch files are left"


@pytest.mark.parametrize("kind", ["killed", "full disk"])
def test_trouble_of_the_compiler_is_no_verdict(place, kind):
    """What failed for lack of memory or disk is tried again by the next compilation, on the same cache."""
    end = {"killed": "kill -9 $$", "full disk": "echo 'u0.s: fatal error: No space left on device' >&2; exit 1"}[kind]
    cc = script(place, "cc", f"#!/bin/sh\ncase $* in *--version*) exec /usr/bin/env cc --version;; esac\n{end}\n")
    code, _, stderr = place.compile(env={"RTX_CC": cc})
    assert code == 0 and len(warnings(stderr)) == 1, stderr
    good = '#!/bin/sh\nexec /usr/bin/env cc "$@"\n#'
    script(place, "cc", good.ljust(os.path.getsize(cc), "#"))  # the same compiler, as far as a key can tell
    r = subprocess.run([*place.command(), "--json"], cwd=place.folder, env=place.env(RTX_CC=cc), capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    report = json.loads(r.stdout)
    assert report["rejected"] == 0 and "untuned" not in report and report["compiled"] > 0
    place.right()


def test_many_environment_variables(place):
    code, _, stderr = place.compile(env={f"V{i}": "1" for i in range(700)})
    assert code == 0 and not warnings(stderr), stderr


@pytest.mark.parametrize("what", ["ignored", "blocked"])
def test_the_callers_signal_settings_do_not_reach_the_children(place, what):
    change = {"ignored": lambda: [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTERM)],
              "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())}[what]
    code, _, stderr = place.compile(preexec_fn=change)
    assert code == 0 and not warnings(stderr), stderr
    place.right()


def test_the_worker_is_found_through_links_and_from_other_folders(place):
    (place.folder / "rtx").symlink_to(rtx_tool())
    env = {k: v for k, v in place.env().items() if k != "RTX_WORKER"}
    r = subprocess.run([str(place.folder / "rtx"), *place.command()[1:]], cwd=place.folder, env=env, capture_output=True, text=True)
    assert r.returncode == 0 and not warnings(r.stderr), r.stderr
    (place.folder / "librtx.so").symlink_to(BUILD / "librtx.so")
    code = ("import os, rtx; os.chdir('/'); d = os.environ['DIR']\n"
            "p = rtx.compile(d + '/f.rtx', cache=d + '/cache', budget=2, threads=1, buckets={'n': [16]}); print(p.report)")
    r = subprocess.run([sys.executable, "-c", code], cwd=place.folder, capture_output=True, text=True,
                       env={**env, "RTX_LIB": "./librtx.so", "DIR": str(place.folder), "PYTHONPATH": str(BUILD.parent / "python")})
    assert r.returncode == 0 and "untuned" not in r.stdout, r.stderr + r.stdout


def test_numbers_are_written_in_the_c_locale(place):
    """A program with another sign for the decimal point tunes as any other, and its cache serves all."""
    made = shutil.which("localedef") and subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(place.folder / "de_DE.UTF-8")],
                                                        capture_output=True)
    if not made or not (place.folder / "de_DE.UTF-8").exists():
        pytest.skip("no localedef, or no locale sources (Debian: locales)")
    place.without_cache()  # the facts of the machine are numbers, too
    code = ("import locale, os, rtx; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); assert locale.str(1.5) == '1,5'\n"
            "p = rtx.compile('f.rtx', budget=4, threads=1, buckets={'n': [16]}, cache=os.environ['CACHE'], out='de.rtxgc')\n"
            "assert 'untuned' not in p.report and p.report['rejected'] == 0, p.report")
    r = subprocess.run([sys.executable, "-c", code], cwd=place.folder, capture_output=True, text=True,
                       env=place.env(LOCPATH=str(place.folder), CACHE=str(place.cache), RTX_LIB=str(BUILD / "librtx.so"),
                                     PYTHONPATH=str(BUILD.parent / "python")))
    assert r.returncode == 0, r.stderr
    place.right(place.folder / "de.rtxgc")
    r = subprocess.run([*place.command(), "--json"], cwd=place.folder, env=place.env(), capture_output=True, text=True)
    report = json.loads(r.stdout)
    assert r.returncode == 0 and report["cache_hits"] == report["cache_keys"] > 0, r.stderr
    place.right()


@pytest.mark.skipif(not ROOT_USER, reason="needs root to give a folder away")
def test_foreign_cache(place):
    place.without_cache()
    place.cache.mkdir(mode=0o755)
    os.chown(place.cache, 12345, 12345)
    code, _, stderr = place.compile()
    assert code == 0, stderr
    assert len(warnings(stderr)) == 1 and str(place.cache) in stderr, stderr
    place.right()
    assert not list(place.cache.iterdir())


@pytest.mark.skipif(not ROOT_USER or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_read_only_cache_of_an_unprivileged_user(place):
    place.without_cache()
    place.cache.mkdir(mode=0o555)
    for p in [place.folder, *place.folder.rglob("*")]:
        os.chown(p, NOBODY, NOBODY)
    tools = place.folder / "bin"  # the build may lie where nobody may not go
    tools.mkdir()
    for name in ("rtx", "rtx-worker"):
        shutil.copy2(BUILD / name, tools / name)
    for parent in place.folder.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent) not in ("/", "/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
    args = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", str(tools / "rtx"), *place.command()[1:]]
    r = subprocess.run(args, cwd=place.folder, env=place.env(RTX_WORKER=str(tools / "rtx-worker")), capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    assert len(warnings(r.stderr)) == 1 and str(place.cache) in r.stderr, r.stderr
    place.right()
    assert not list(place.cache.iterdir())


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_damaged_cache(place, damage):
    assert place.compile(budget="2")[0] == 0
    entries = [p for p in place.cache.rglob("*") if p.is_file() and p.stat().st_size > 200]
    assert entries
    for p in entries:
        data = bytearray(p.read_bytes())
        if damage == "flipped":
            data[len(data) // 2] ^= 16
        p.chmod(0o600)
        p.write_bytes(data[:len(data) // 2] if damage == "truncated" else data)
    code, _, stderr = place.compile(budget="2")
    assert code == 0, stderr
    assert len(warnings(stderr)) == 1 and str(place.cache) in stderr, stderr
    place.right()
    assert place.bad_entries() == 0


# ---- refused: exit 1, nothing left ----

def limit_file_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


def test_no_room_for_the_output(place):
    code, _, stderr = place.compile("off", preexec_fn=limit_file_size)
    assert code == 1 and "f.rtxgc" in stderr or ".rtx-" in stderr, stderr
    assert not place.left()


@pytest.mark.skipif(not ROOT_USER or not shutil.which("mount"), reason="needs root to mount")
def test_full_disk(place):
    disk = place.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        code, _, stderr = place.compile("off", out=disk / "f.rtxgc")
        assert code == 1 and "space" in stderr, stderr
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_full_disk_keeps_the_earlier_bundle(place):
    assert place.compile("off")[0] == 0
    before = place.out.read_bytes()
    assert place.compile("off", preexec_fn=limit_file_size)[0] == 1
    assert place.out.read_bytes() == before
    assert place.left() == ["f.rtxgc"]


def test_damaged_bundle(place):
    assert place.compile("off")[0] == 0
    data, bad = place.out.read_bytes(), place.folder / "bad.rtxgc"
    rng = np.random.default_rng(7)
    for at in [0, 8, len(data) - 1, *rng.integers(0, len(data), 12)]:
        flipped = bytearray(data)
        flipped[at] ^= 1 << int(rng.integers(0, 8))
        for what, content in (("flip", flipped), ("cut", data[:at])):
            bad.write_bytes(content)
            r = subprocess.run([rtx_tool(), "run", str(bad)], capture_output=True, text=True, env=place.env())
            other_version = what == "flip" and 8 <= at < 12  # looks like a file of another format: exit 3
            assert r.returncode == (3 if other_version else 1) and r.stderr and r.stdout == "", f"{what} at {at}: exit {r.returncode} {r.stdout} {r.stderr}"


# ---- numbers ----

def test_nan_and_infinity_in_weights(tmp_path, profiled):
    w = WEIGHTS.copy()
    w[3, 5], w[7, 9], w[1, 11] = np.nan, np.inf, -np.inf
    place = Place(tmp_path, w, profiled)
    for tune in ("off", "quick"):
        code, _, stderr = place.compile(tune)
        assert code == 0, stderr
        with np.errstate(invalid="ignore"):
            place.right()


@pytest.mark.parametrize("last", ["sin", "sum"])
def test_a_region_that_no_candidate_passes_is_cut(place, last):
    """sin(10000 x): what rounding the product does is not the sine's fault, so two kernels pass where one does not."""
    (place.folder / "f.rtx").write_text('sym n 0..1024\nfunc @f(%0 "x": f32[n,48]) {\n  %1 = const f32[] {10000}\n  %2 = broadcast %1 {dims=[n,48]}\n'
                                        '  %3 = mul %0 %2\n  %4 = sin %3\n' +
                                        ('  return %4 "y"\n}\n' if last == "sin" else '  %5 = reduce_sum %4 {axes=[0]}\n  return %5 "y"\n}\n'))
    for again in (False, True):
        r = subprocess.run([*place.command(), "--json"], cwd=place.folder, env=place.env(), capture_output=True, text=True)
        assert r.returncode == 0 and not warnings(r.stderr), r.stderr
        report = json.loads(r.stdout)
        assert (report["cache_hits"] == report["cache_keys"]) == again, report
    r = subprocess.run([rtx_tool(), "explain", "f.rtxgc", "--json"], cwd=place.folder, env=place.env(), capture_output=True, text=True)
    cut = json.loads(r.stdout)["fusion"][0]
    assert (cut["chosen"], cut["why"]) == ("split", "no candidate was accepted"), cut
    r = subprocess.run([rtx_tool(), "run", "f.rtxgc", "--input", "x=x.npy", "--output", "got"], cwd=place.folder, env=place.env(), capture_output=True)
    assert r.returncode == 0, r.stderr
    want = np.sin((place.x * np.float32(10000)).astype(np.float64))
    np.testing.assert_allclose(np.load(place.folder / "got/y.npy"), want if last == "sin" else want.sum(0), rtol=0, atol=1e-5)


def test_large_fixed_sizes_are_tuned(tmp_path, profiled):
    """8.8 GFLOP: too much for the reference as a whole, so rows must be a size of the call and be checked at small ones."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((512, 2100)).astype(np.float32) / 16
    place = Place(tmp_path, weights, profiled)
    text = model_text(weights).replace("sym n 0..1024\n", "").replace("f32[n,", "f32[4096,")
    (tmp_path / "f.rtx").write_text(text)
    r = subprocess.run([rtx_tool(), "compile", "f.rtx", "-o", "f.rtxgc", "--threads", "1", "--budget", "8", "--cache", str(place.cache), "--json"],
                       cwd=tmp_path, env=place.env(), capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    report = json.loads(r.stdout)
    assert report["warnings"] == [] and report["kernels"]["tuned"] > 0, report
    place.x = rng.standard_normal((4096, 512)).astype(np.float32)
    np.save(tmp_path / "x.npy", place.x)
    place.right()


def test_one_bundle_for_every_level(place):
    code, _, stderr = place.compile()
    assert code == 0, stderr
    missing = LEVELS[LEVELS.index(cpu_level()) + 1:]
    for level in LEVELS:
        r = subprocess.run([rtx_tool(), "inspect", str(place.out), "--json"], capture_output=True, text=True, env=place.env(RTX_ISA=level))
        used = {k["isa"] for k in json.loads(r.stdout)["kernels"]}
        assert used == {level if level not in missing else cpu_level()}, (level, used)
        place.right(RTX_ISA=level)
    print("levels not run:", list(missing))


def heeds_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whatever started these tests may ignore it


def test_interrupted_tuning(place):
    p = place.start(budget="60", preexec_fn=heeds_interrupts)
    found = wait_for(lambda: workers(p.pid))
    assert found
    time.sleep(0.5)
    family = list(children(p.pid))
    p.send_signal(signal.SIGINT)
    _, stderr = p.communicate(timeout=20)
    assert p.returncode == 130, stderr
    assert gone(family), "a worker or a compiler outlives rtx"
    assert not place.left()
    assert place.bad_entries() == 0
    assert place.compile()[0] == 0
    place.right()


@pytest.mark.parametrize("args", [
    ["compile", "zoo:encoder,hidden=1024,layers=12,ffn=4096,heads=16", "--tune", "off", "-o", "f.rtxgc"],
    ["profile", "--redo", "--cache", "cache"], ["compile", "-", "-o", "f.rtxgc"], ["run", "-"]], ids=" ".join)
def test_interrupted_early(place, args):
    """Ctrl-C ends every command, in whatever phase, within seconds, and leaves nothing."""
    silent, held = os.pipe()
    p = subprocess.Popen([rtx_tool(), *args], cwd=place.folder, env=place.env(), stdin=silent, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, preexec_fn=heeds_interrupts)
    time.sleep(1)
    p.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, stderr = p.communicate(timeout=60)
    os.close(silent)
    os.close(held)
    assert p.returncode == 130, (time.monotonic() - start, stderr)
    assert not place.left()


def test_an_ignored_interrupt_stays_ignored(place):
    p = place.start(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert wait_for(lambda: workers(p.pid))
    p.send_signal(signal.SIGINT)
    _, stderr = p.communicate(timeout=60)
    assert p.returncode == 0, stderr
    place.right()


def test_tuning_again_what_was_not_tuned(place):
    assert place.compile(tune="off")[0] == 0
    before = place.out.read_bytes()
    r = subprocess.run([rtx_tool(), "tune", str(place.out)], cwd=place.folder, env=place.env(), capture_output=True, text=True)
    assert r.returncode == 3 and "compiled without tuning" in r.stderr and "rtx tune MODEL" in r.stderr, r.stderr
    assert place.out.read_bytes() == before


# ---- alone ----

ALONE = r"""
#include "rtx/run.h"
#include <stdio.h>
static float x[17 * 48], y[17 * 40], t[17 * 40], s[17];
int main(void)
{
    rtx_err err = {0};
    rtx_program *p = NULL;
    FILE *in = fopen("x.bin", "rb"), *out;
    if (!in || fread(x, 4, 17 * 48, in) != 17 * 48) return 2;
    if (rtx_program_open("f.rtxgc", 2, &p, &err) != RTX_OK) return fprintf(stderr, "%s\n", err.text), 3;
    rtx_tensor a = {"x", x, RTX_F32, 2, {17, 48}};
    rtx_tensor o[3] = {{"y", y, RTX_F32, 2, {17, 40}}, {"t", t, RTX_F32, 2, {17, 40}}, {"s", s, RTX_F32, 1, {17}}};
    if (rtx_program_run(p, &a, 1, o, 3, 2, &err) != RTX_OK) return fprintf(stderr, "%s\n", err.text), 4;
    for (int i = 0; i < 17 * 40; i++) printf("%.9g\n", (double)y[i]);
    rtx_program_close(p);
    (void)out;
    return 0;
}
"""


@pytest.mark.skipif(not ROOT_USER, reason="chroot needs root")
def test_alone_in_an_empty_root(place):
    """A tuned bundle with librtx-run and the libc it names, nothing else: no /proc, no /dev, no compiler."""
    assert place.compile()[0] == 0
    root = place.folder / "root"
    root.mkdir()
    (place.folder / "alone.c").write_text(ALONE)
    include = Path(__file__).resolve().parents[2] / "include"
    subprocess.run(["cc", "-I", str(include), "alone.c", "-o", str(root / "alone"), str(BUILD / "librtx-run.so"), "-Wl,-rpath,/lib"],
                   cwd=place.folder, check=True)
    needed = subprocess.run(["ldd", str(root / "alone")], capture_output=True, text=True, check=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(BUILD)}).stdout
    names = []
    for line in needed.splitlines():
        path = line.split("=>")[-1].split("(")[0].strip()
        if path.startswith("/"):
            target = root / (Path(line.split("=>")[0].split("(")[0].strip()).as_posix().lstrip("/") if "=>" not in line else
                             "lib/" + Path(path).name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            names.append(Path(path).name)
    assert all(n.startswith(("librtx-run", "libc.", "ld-linux", "libm.", "libpthread", "libdl")) for n in names), names
    shutil.copy2(place.out, root / "f.rtxgc")
    place.x.tofile(root / "x.bin")
    r = subprocess.run([shutil.which("chroot"), str(root), "/alone"], capture_output=True, text=True, env={}, timeout=60)
    assert r.returncode == 0, r.stderr
    got = np.array(r.stdout.split(), float).reshape(17, 40)
    np.testing.assert_allclose(got, place.x.astype(np.float64) @ place.weights, rtol=1e-4, atol=1e-4)
