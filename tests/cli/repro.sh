#!/bin/sh
# One candidate from its file: 0 accepted, 1 rejected or no such file, 3 not by this version. Times and errors are made alike.
try() { echo "\$ rtx $*"; rtx "$@" >out 2>&1; code=$?; sed -e 's/ at v[234]/ at V/' -e 's,v1/[0-9a-f]*/,v1/CPU/,' out; echo "exit $code"; }
R=$SRC/../repro
cp $R/row_softmax_strided.repro good.repro
cp $R/plant_unit_dependent.repro bad.repro
try repro good.repro
try repro bad.repro
try repro bad.repro --json
try repro - <good.repro
rtx repro good.repro --source --json | python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["template"], j["params"], "K_NAME" in j["source"])'
RTX_WORKER=none try repro good.repro
rtx repro good.repro --source >good.c && grep -o "K_NAME repro" good.c
sed 's/WORK=1024/WORK=7/' good.repro >value.repro
sed 's/WORK=1024/TILE=7/' good.repro >name.repro
sed 's,cpu/row,cpu/none,' good.repro >template.repro
sed 's/^sizes 5 31/sizes 5/' good.repro >sizes.repro
sed 's/^rtx-repro 1/rtx-repro 2/' good.repro >version.repro
head -c 120 good.repro >cut.repro
for f in value name template sizes version cut; do try repro $f.repro; done
try repro 0123456789abcdef0123456789abcdef --cache c
rm out good.c && ls
