#!/usr/bin/env bash
# Checks plegd.service without installing it: systemd's own verification, the
# exposure score, and three mistakes that `systemd-analyze verify` does not see.
# Needs systemd 250 or newer; it need not be running.
set -euo pipefail
cd "$(dirname "$0")"
unit=plegd.service
# Exposure times ten: at most 2.4.
threshold=24

command -v systemd-analyze >/dev/null || { echo "verify.sh: no systemd-analyze here (Debian: systemd)" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "$unit: $*" >&2; exit 1; }

# The binary need not be installed where the unit is checked.
printf '#!/bin/sh\n' > "$tmp/plegd"
chmod 755 "$tmp/plegd"
sed "s|^ExecStart=/usr/bin/plegd |ExecStart=$tmp/plegd |; s|^ExecPaths=/usr/bin/plegd$|ExecPaths=$tmp/plegd|" "$unit" > "$tmp/$unit"
grep -q "^ExecStart=$tmp/plegd run$" "$tmp/$unit" || fail "ExecStart is not /usr/bin/plegd run"

# A warning is a failure too: an unknown directive is only a warning, and the
# hardening it stood for is not there.
cp plegd.socket "$tmp/"
out=$(systemd-analyze verify --man=no --recursive-errors=no "$tmp/$unit" "$tmp/plegd.socket" 2>&1) || { echo "$out" >&2; fail "systemd-analyze verify failed"; }
[ -z "$out" ] || { echo "$out" >&2; fail "systemd-analyze verify complains"; }

# Not seen by verify: unknown capability names ...
for c in $(sed -n 's/^\(CapabilityBoundingSet\|AmbientCapabilities\)=~\?//p' "$unit"); do
  systemd-analyze capability "$c" >/dev/null || fail "no such capability: $c"
done
# ... unknown system calls and groups ...
for c in $(sed -n 's/^SystemCallFilter=~\?//p' "$unit" | tr ' ' '\n' | grep '^@' || true); do
  systemd-analyze syscall-filter "$c" >/dev/null || fail "no such system call group: $c"
done
# ... and a watchdog that nobody listens for.
if grep -q '^WatchdogSec=' "$unit"; then
  grep -Eq '^Type=notify(-reload)?$' "$unit" || fail "WatchdogSec needs Type=notify"
fi
systemd-analyze security --offline=true --threshold="$threshold" --no-pager "$unit" > "$tmp/security" || {
  cat "$tmp/security" >&2
  fail "the exposure is above $((threshold / 10)).$((threshold % 10))"
}
echo "$unit: verified;$(tail -n 1 "$tmp/security" | sed 's/^[^O]*Overall//; s/ [^ ]*$//')"
