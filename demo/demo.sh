#!/usr/bin/env bash
# Shows a fault, its reason, the kubelet's message and the recovery on a simulated runtime:
#   demo/demo.sh [PLEGD]
# It fails with one line if a step does not come.
set -euo pipefail

plegd=$(realpath "${1:-build/plegd}")
[ -x "$plegd" ] || { echo "demo: there is no $plegd: run make build first" >&2; exit 1; }
dir=$(mktemp -d /tmp/plegd-demo-XXXXXX)
children=()
trap 'kill "${children[@]}" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
export PLEGD_CONTROL_SOCKET=$dir/plegd.sock

# The kubelet's threshold of 3 min, shortened for the demo.
threshold=20

say() { printf '\n%3d s  %s\n' "$SECONDS" "$*"; }
fail() { echo "demo: FAILED: $*" >&2; cat "$dir/run.log" >&2; exit 1; }

failpoints() {
  echo "       \$ plegd simulate failpoints '$1'"
  "$plegd" simulate failpoints --socket "$dir/runtime.sock" "$1" >/dev/null
}

# await SECONDS PATTERN: until the first line of plegd status matches.
await() {
  local end=$((SECONDS + $1)) line=
  until [[ $line =~ $2 ]]; do
    [ "$SECONDS" -lt "$end" ] || fail "waited $1 s for $2; plegd status begins: $line"
    sleep 0.2
    line=$("$plegd" status 2>&1 | sed -n 1p) || true
  done
}

# status prints the verdict and its evidence, without the tables.
status() { "$plegd" status | sed '/^Last seen/,$d; s/^/       | /' || true; }

say "A simulated container runtime: 110 pods with 2 containers each, CRI over a unix socket."
"$plegd" simulate --socket "$dir/runtime.sock" --pods 110 --containers 2 >"$dir/simulate.log" 2>&1 &
children+=($!)
say "plegd relists it every second, as the kubelet does. The kubelet's threshold is 3 min, here $threshold s."
"$plegd" run --runtime-endpoint "unix://$dir/runtime.sock" --relist-threshold "${threshold}s" \
  --web.listen-address 127.0.0.1:0 --state-dir "$dir/state" --log.format console >"$dir/run.log" 2>&1 &
children+=($!)
await 15 '^HEALTHY'
status

say "The fault: ListContainers hangs, every other call answers. No call has failed."
failpoints 'ListContainers=hang'
await 10 '^DEGRADED'
status

say "The kubelet's rules still hold, until:"
await $((threshold + 10)) '^UNHEALTHY'
status
"$plegd" check >/dev/null && fail "plegd check reports no problem" || code=$?
[ "$code" = 2 ] || fail "plegd check exits with $code, want 2"

say "The recovery: the call returns, and the next relist succeeds."
sleep 3 # A hang that ends exactly at the threshold would flap, by the kubelet's own rules.
failpoints 'ListContainers=off'
await 15 '^HEALTHY'
status

say "The log of plegd:"
cut -c1-160 "$dir/run.log" | sed 's/^/       | /'
say "Done: healthy, degraded with a reason, unhealthy at the threshold, healthy again."
