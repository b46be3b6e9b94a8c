#!/bin/sh
# The cut: what decided on it is evidence, a second compilation finds it, and a pin brings its own.
M=zoo:mlp,in=8,hidden=16,out=4,layers=2
O="--bucket batch=4 --threads 1 --budget 4"
rtx compile $M -o a.rtxgc $O --cache c --json -q >a.json || exit
rtx compile $M -o b.rtxgc $O --cache c --json -q >b.json || exit
cat >facts.py <<'PY'
import json, subprocess, sys
def rtx(*a):
    return json.loads(subprocess.run(["rtx", *a, "--json"], capture_output=True, text=True, check=True).stdout)
PY
python3 - <<'PY'
from facts import *
a, b = json.load(open("a.json")), json.load(open("b.json"))
print(a["cache_hits"], b["cache_hits"] == b["cache_keys"] == a["cache_keys"] > 0, b["candidates"], b["compiled"])
e = rtx("explain", "a.rtxgc")
print(e["fusion"] == rtx("explain", "b.rtxgc")["fusion"], rtx("inspect", "a.rtxgc")["steps"] == rtx("inspect", "b.rtxgc")["steps"])
for f in e["fusion"]:
    assert f["chosen"] in ("fused", "split") and f["uses"] > 0 and f["ns"] > 0 and f["why"] and f["problem"].startswith("problem 1"), f
    assert ("fused_ns" in f) == ("split_ns" in f), f
    for key in ("fused_ns", "split_ns"):
        f.pop(key, None)
    f["chosen"], f["why"], f["saves"], f["bound"] = "fused", "planted", 0.5, 0.25
json.dump(e, open("fused.json", "w"))
last = [f for f in e["fusion"] if "elu " in f["problem"]][0]
last.update(chosen="split", fused_ns=3e6, split_ns=2e6)
json.dump(e, open("split.json", "w"))
PY
for cut in fused split; do
    rtx compile $M -o $cut.rtxgc $O --cache "" --pin $cut.json -q >/dev/null || exit
    # The order is by measured time; wrapped lines are joined.
    rtx explain $cut.rtxgc | sed -n '/^cut$/,$p' | sed -e ':a' -e '$!N;s/\n      */ /;ta' -e 'P;D' | sort
done
python3 - <<'PY'
from facts import *
print(rtx("inspect", "split.rtxgc")["steps"] - rtx("inspect", "fused.rtxgc")["steps"], "step more")
PY
rtx compare $M split.rtxgc --no-nodes >/dev/null && echo "right when split"
rtx tune split.rtxgc --cache c --budget 4 -q >/dev/null && rtx explain split.rtxgc | grep -c '  split: planted'
rtx compile $M -o off.rtxgc $O --tune off -q >/dev/null && rtx explain off.rtxgc | grep -c '^cut$'
:
