#!/bin/sh
# Wrong use exits 2 with a hint.
try() { echo "\$ rtx $*"; rtx "$@" 2>&1 </dev/null; echo "exit $?"; }
try cmopile
try xyzzy
try compile
try compile a b
try compile m.onnx --tnue quick
try compile m.onnx --tune quickly
try compile m.onnx --budget -3
try compile m.onnx --shape ids
try compile m.onnx --shape ids=1y2
try compile m.onnx --bucket seq=0
try compile m.onnx --threads 0
try compile m.onnx -o a -o b
try compile m.onnx -x
try compile m.onnx --json=5
try compile m.onnx -o
try compile -
try run x.rtxgc --repeat 0
try run x.rtxgc --output -
try compile m.onnx -o ''
try tune x.rtxgc --tune off
try cache shrink
try cache gc --max-bytes lots
try zoo sell
try zoo export zoo:mlp
try opt --pass=magic x.rtx
try bench zoo:mlp --pairs 3
try bench zoo:mlp --json absent/out.txt
try bench --json out.txt zoo:mlp
try compare - -
try compile - --pin - -o x.rtxgc
try compile m.onnx --tune off --pin old.json
try cache stat --cache ''
try compile zoo:mlp --bucket foo=1 --tune off
try compile zoo:mlp --bound foo=1:2 --tune off
try compile zoo:mlp --bucket batch=8 --bound batch=1:4 --tune off
try compile m.onnx --bound batch=5
try compile m.onnx --bound batch=5:2
