#!/usr/bin/env python3
"""Make tests/fuzz/corpus/bundle/program.rtxgc and records.plan (its first plan) with the rtx that is built: after each change of
the format. The model has a table, a product, sizes of two symbols, and one that may come out below 0."""
import pathlib, struct, subprocess, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/fuzz/corpus/bundle"
MODEL = """sym n 0..64
sym batch 1..8
func @main(%0 "ids": i64[n], %1 "x": f32[batch,n]) {
  %2 = const f32[3,4] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
  %3 = gather %2 %0 {axis=0}
  %4 = const f32[4,4] {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}
  %5 = dot %3 %4
  %6 = slice %1 {start=[0,5] size=[batch,n-5] step=[1,1]}
  %7 = reduce_sum %6 {axes=[1]}
  return %5 "y", %7 "s"
}
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.rtx"
        model.write_text(MODEL)
        subprocess.run([ROOT / "build/rtx", "compile", model, "-o", OUT / "program.rtxgc", "--tune", "off", "--quiet"], check=True)
    data = (OUT / "program.rtxgc").read_bytes()
    sections = struct.unpack_from("<I", data, 12)[0]
    for k in range(sections):
        kind, _, offset, length = struct.unpack_from("<IIQQ", data, 64 + 72 * k)
        if kind == 2:
            (OUT / "records.plan").write_bytes(data[offset:offset + length])
            return


main()
