#!/bin/sh
# Tuning, the cache, retuning in place, and Ctrl-C.
M=zoo:mlp,in=8,hidden=16,out=4,layers=2
O="--bucket batch=1,4 --threads 1 --budget 5 --cache c"
rtx compile $M -o a.rtxgc $O --json -q >a.json || exit
rtx compile $M -o b.rtxgc $O --json -q >b.json || exit
python3 - <<'PY'
import json, subprocess
a, b = json.load(open("a.json")), json.load(open("b.json"))
print(a["cache_hits"], b["cache_hits"] == b["cache_keys"] == a["cache_keys"] > 0)
def kernels(f):
    j = json.loads(subprocess.run(["rtx", "inspect", f, "--json"], capture_output=True, text=True, check=True).stdout)
    return sorted((k["name"], k["origin"], k["params"]) for k in j["kernels"])
print(kernels("a.rtxgc") == kernels("b.rtxgc"), any(k[1] == "tuned" for k in kernels("a.rtxgc")))
PY
rtx compile $M -o pinned.rtxgc --bucket batch=1,4 --threads 1 --budget 5 --cache "" --pin a.rtxgc -q >/dev/null || exit
python3 - <<'PY'
import json, subprocess
def chosen(f):
    j = json.loads(subprocess.run(["rtx", "inspect", f, "--json"], capture_output=True, text=True, check=True).stdout)
    return {(k["template"], json.dumps(k["params"])) for k in j["kernels"]}
print("pinned to what won", chosen("pinned.rtxgc") <= chosen("a.rtxgc"))
PY
rtx tune a.rtxgc --budget 5 --cache c -q --json >t.json || exit
python3 -c 'import json; a, t = json.load(open("a.json")), json.load(open("t.json")); print(sorted(a) == sorted(t), t["warnings"])'
rtx tune - -o - --budget 5 --cache c -q <a.rtxgc >piped.rtxgc 2>/dev/null && rtx compare $M piped.rtxgc --no-nodes >/dev/null && echo "tuned from standard input"
rtx inspect a.rtxgc --json | python3 -c '
import json, subprocess, sys
k = [k for k in json.load(sys.stdin)["kernels"] if k["origin"] == "tuned"][0]
s = json.loads(subprocess.run(["rtx", "inspect", "a.rtxgc", "--source", k["name"], "--json"], capture_output=True, text=True, check=True).stdout)
print(sorted(s), s["template"] == k["template"], len(s["source"]) > 100)'
rtx compare $M a.rtxgc --no-nodes >/dev/null && echo "right after tuning in place"
rtx cache stat --cache c --json | python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["entries"] > 0, j["bad"])'
rtx cache verify --cache c >/dev/null && rtx cache gc --max-bytes 0 --cache c --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["entries"])'
rtx compile $M -o a.rtxgc $O -q >/dev/null
for f in $(find c -type f -path "c/v*/*/*/*" ! -name "*.repro" | sort | head -2); do echo damage >$f; done
rtx cache verify --cache c >said 2>err; echo "exit $?"; grep -c "^  c/v" said; sed 's/of [0-9]* entries/of N entries/' err
rtx cache verify --cache c --json 2>/dev/null | python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["bad"], len(j["damaged"]))'
rtx cache verify --cache c --remove >/dev/null && rtx cache verify --cache c >/dev/null && echo "removed"
timeout --preserve-status -s INT 2 rtx compile zoo:encoder -o never.rtxgc --tune full --cache "" -q 2>err # not "&": the shell would ignore it
echo "exit $?"
cat err
ls never* 2>/dev/null
:
