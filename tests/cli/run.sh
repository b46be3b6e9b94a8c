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
try run mlp.rtxgc --input x=- --input z=- </dev/null
try run - --input x=- <mlp.rtxgc
rtx run - <mlp.rtxgc | head -1
try run - </dev/null
mkdir -p taken/y.npy
try run mlp.rtxgc --input x=x.npy --output taken
cat >two.rtx <<'TEXT'
sym n 0..
func @f(%0 "x": f32[n,8]) {
  %1 = add %0 %0 : f32[n,8]
  %2 = mul %0 %0 : f32[n,8]
  return %1 "a/b", %2 "a_b"
}
TEXT
rtx compile two.rtx --tune off -q >/dev/null && try run two.rtxgc --input x=x.npy --output two
ls two
head -c 5000 mlp.rtxgc >cut.rtxgc
rtx run cut.rtxgc 2>/dev/null; echo "exit $?"
:
