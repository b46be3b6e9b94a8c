#!/usr/bin/env bash
# The main job on an embedded model: write it as ONNX, compile it for this machine, check it against the oracle, run it,
# print what was gained. Then the same on MiniLM when the package index answers. Called by `./dev demo` after the build.
set -eu
cd "$(dirname "$0")/.."
rtx=build/rtx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n== %s\n' "$*"; }

job() { # job NAME MODEL COMPILE-OPTIONS…
  name=$1 model=$2
  shift 2
  say "$name: compile (tuning on this machine)"
  "$rtx" compile "$model" -o "$work/$name.rtxgc" "$@"
  say "$name: error against the double-precision oracle"
  "$rtx" compare "$model" "$work/$name.rtxgc"
  say "$name: tuned against baseline"
  "$rtx" bench "$model" --size seq=128 --size batch=1 "$@"
  say "$name: what was chosen"
  "$rtx" inspect "$work/$name.rtxgc" | head -n 40
}

"$rtx" --version
say "embedded model: 4-layer encoder"
"$rtx" zoo export zoo:encoder --layers 4 --hidden 256 --heads 8 --ffn 1024 -o "$work/encoder.onnx"
job encoder "$work/encoder.onnx" --bucket seq=32,128 --bucket batch=1

ran="the embedded encoder"
venv=${RTX_VENV:-build/venv}
if [ -x "$venv/bin/python" ] || python3 -m venv "$venv" 2>/dev/null; then
  if "$venv/bin/pip" -q install -r tests/requirements.txt >/dev/null 2>&1 &&
    cp tests/requirements.txt "$venv/pins" &&
    "$venv/bin/python" tests/models/minilm/fill.py "$work" >/dev/null 2>&1; then
    job minilm "$work/minilm-eager-legacy.onnx" --bucket seq=16,128 --bucket batch=1
    ran="$ran and all-MiniLM-L6-v2"
  fi
fi
say "ran: $ran"
case $ran in *MiniLM*) ;; *) echo "MiniLM was left out: its weights or the Python packages could not be had from the package index." ;; esac
