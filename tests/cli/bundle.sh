#!/bin/sh
# inspect, explain, compare of a bundle made without tuning.
rtx compile zoo:mlp,in=8,hidden=16,out=4,layers=2 -o m.rtxgc --tune off --threads 1 --json >report.json || exit
python3 - <<'PY'
import json, subprocess
def rtx(*a):
    return json.loads(subprocess.run(["rtx", *a, "--json"], capture_output=True, text=True, check=True).stdout)
r = json.load(open("report.json"))
print(sorted(r))
assert r["cache_keys"] == r["cache_hits"] == 0 and r["file_bytes"] > 0 and r["warnings"] == [], r
i = rtx("inspect", "m.rtxgc")
assert i["kernels"] and all(k["origin"] == "precompiled" and k["template"] and "params" in k for k in i["kernels"]), i
assert i["sections"]["file"] == r["file_bytes"]
print(i["manifest"]["inputs"], i["manifest"]["threads"])
e = rtx("explain", "m.rtxgc")
assert all(sum(c["verdict"] == "winner" for c in k["candidates"]) == 1 for k in e["kernels"]), e
one = rtx("explain", "m.rtxgc", e["kernels"][0]["name"])
assert 1 <= len(one["kernels"]) <= len(e["kernels"])
c = rtx("compare", "zoo:mlp,in=8,hidden=16,out=4,layers=2", "m.rtxgc", "--size", "batch=5")
assert c["ok"] and c["sizes"] == {"batch": 5} and c["outputs"][0]["error"] < 1e-6 and len(c["nodes"]) >= 3, c
PY
rtx inspect m.rtxgc | awk 'length > 80 { print "wider than 80: " $0 }'
rtx explain m.rtxgc nothing 2>&1 || echo "exit $?"
rtx compare zoo:mlp,in=8,hidden=16,out=4,layers=2 m.rtxgc --tolerance 1e-12 >/dev/null 2>err; echo "exit $?"
rtx compile zoo:mlp,in=8 -o - --tune off 2>/dev/null >stream.rtxgc && rtx run stream.rtxgc >/dev/null && echo streamed
rtx zoo export zoo:mlp --in 8 -o - 2>/dev/null | rtx compile - -o piped.rtxgc --tune off -q >/dev/null && rtx run piped.rtxgc >/dev/null && echo piped
for c in "inspect -" "explain -" "compare zoo:mlp,in=8,hidden=16,out=4,layers=2 - --no-nodes"; do
    rtx $c <m.rtxgc >/dev/null && echo "$c: from standard input"
done
try() { echo "\$ rtx $*"; rtx "$@" 2>&1; echo "exit $?"; }
try compile m.rtxgc -o other.rtxgc
try compile - -o other.rtxgc <m.rtxgc
try tune m.rtxgc -o - --json
try tune m.rtxgc -o absent/m.rtxgc
try compile zoo:mlp -o absent/m.rtxgc
try compile zoo:mlp -o .
rtx zoo export zoo:mlp -o model.onnx >/dev/null
try inspect model.onnx
try run zoo:mlp
try bench m.rtxgc
try compare zoo:mlp,in=8,hidden=16,out=5,layers=2 m.rtxgc
rtx compare zoo:mlp,in=8,hidden=16,out=4,layers=2,seed=2 m.rtxgc 2>&1 | grep error:
rtx inspect m.rtxgc --source nothing --json 2>&1
rtx compile zoo:mlp,in=8 -o - --tune off 2>&1 >size.rtxgc | grep -c "^standard output: 1.* MB"
ls
rtx compile zoo:mlp -o /dev/full --tune off >/dev/null 2>err && echo "a full disk is no error"
:
