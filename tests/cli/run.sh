#!/bin/sh
# compile, run, and what is refused on the way.
A="python3 $SRC/arrays.py"
try() { echo "\$ rtx $*"; rtx "$@" 2>&1; echo "exit $?"; }
rtx compile zoo:mlp,in=8,hidden=16,out=4,layers=2 --tune off -q || exit
ls
rtx run mlp.rtxgc
rtx run mlp.rtxgc --json | python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["inputs"], j["outputs"])'
$A make x.npy f4 3x8
$A make xf.npy f4 3x8 --fortran
$A make bad.npy f4 3x7
$A make int.npy i8 3x8
head -c 100 x.npy >cut.npy
rtx run mlp.rtxgc --input x=x.npy --output out/deep --repeat 5 --threads 1
$A show out/deep/y.npy
rtx run mlp.rtxgc -i x=- -o out <x.npy >/dev/null && cmp out/y.npy out/deep/y.npy
rtx run mlp.rtxgc -i x=xf.npy -o out --json | python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["outputs"], j["repeat"], j["first_ms"] > 0)'
try run mlp.rtxgc --input x=bad.npy
try run mlp.rtxgc --input x=int.npy
try run mlp.rtxgc --input x=cut.npy
try run mlp.rtxgc --input z=x.npy
try run mlp.rtxgc --input x=gone.npy
try run mlp.rtxgc --input x.npy
head -c 5000 mlp.rtxgc >cut.rtxgc
rtx run cut.rtxgc 2>/dev/null; echo "exit $?"
:
