#!/bin/sh
# What is not there is named; nothing is left behind.
try() { echo "\$ rtx $*"; rtx "$@" 2>&1 </dev/null; echo "exit $?"; }
try compile nothere.onnx -o out.rtxgc
try compile zoo:nothing -o out.rtxgc
try run nothere.rtxgc
try inspect nothere.rtxgc
try explain nothere.rtxgc
try compare nothere.onnx
try tune nothere.rtxgc
try opt nothere.rtx
try repro nothere
try compile nothere.onnx --precision fp16
try compile zoo:mlp --pin old.rtxgc -o never.rtxgc
try profile --device gpu
echo hello >text.onnx
try compile text.onnx
try run text.onnx
ls
