#!/bin/sh
# The zoo writes the same ONNX file for the same options.
rtx zoo list --json | python3 -c 'import json, sys; print(*[m["name"] for m in json.load(sys.stdin)["models"]])'
rtx zoo export zoo:mlp --in 8 --hidden 16 --out 4 --layers 2 -o - >c.onnx 2>note || cat note
rtx zoo export zoo:mlp --in 8 --hidden 16 --layers 2 -o a.onnx
rtx zoo export mlp,in=8,hidden=16,layers=2 -o b.onnx --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["out"])'
cmp a.onnx b.onnx
rtx zoo export zoo:mlp --heads 3 -o d.onnx 2>&1 || echo "exit $?"
ls
