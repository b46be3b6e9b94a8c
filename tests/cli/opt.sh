#!/bin/sh
# IR text in, IR text out.
cat >in.rtx <<'TEXT'
sym n 0..
func @twice(%0 "x": f32[n,4]) {
  %1 = add %0 %0 : f32[n,4]
  %2 = add %0 %0 : f32[n,4]
  %3 = mul %1 %2 : f32[n,4]
  return %3 "y"
}
TEXT
rtx opt in.rtx >plain.rtx && rtx opt plain.rtx | cmp - plain.rtx
rtx opt --pass=cse in.rtx
rtx opt --pass=fold --pass=cse --verify - <in.rtx >/dev/null
rtx opt --pass=all in.rtx -o out.rtx && test -s out.rtx
echo nonsense | rtx opt - 2>&1 || echo "exit $?"
