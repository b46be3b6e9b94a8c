#!/bin/sh
# Every command has a help text of at most 80 columns; words that are wrong beside --help do not matter.
rtx --help
for c in compile run compare tune inspect explain bench profile cache info zoo opt repro; do
    rtx $c --help >text || echo "$c: exit $?"
    awk -v c=$c 'length > 80 { print c ": wider than 80: " $0 }' text
    rtx help $c | cmp - text
    rtx $c --nonsense --help | cmp - text
done
rtx --version --json | python3 -c 'import json, sys; j = json.load(sys.stdin); print(sorted(j), j["isa"] in ("v2", "v3", "v4"))'
rtx --version | sed 's/commit [^,]*, isa v[234]/commit C, isa V/'
