#!/usr/bin/env bash
# all.sh [FILE]: makes every table of docs/performance.md, each under its command,
# and writes it into FILE where FILE has it: between a line "<!-- bench:NAME -->"
# and the next "<!-- end -->". ONLY="NAME ..." makes these only, ROUNDS=5 the
# steady state in fewer rounds. All take half an hour; containerd needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

put() { # name: puts $tmp/out in its place
  if [ -n "$file" ]; then
    grep -q "^<!-- bench:$1 -->\$" "$file" || { echo "bench-all: $file has no place for $1: a line <!-- bench:$1 -->" >&2; exit 1; }
    awk -v begin="<!-- bench:$1 -->" -v from="$tmp/out" '
      $0 == begin { print; while ((getline line < from) > 0) print line; skip = 1; next }
      skip && $0 == "<!-- end -->" { skip = 0 }
      !skip' "$file" >"$tmp/file"
    cat "$tmp/file" >"$file"
  fi
}
table() { # name, command
  if [ -n "${ONLY-}" ] && [[ " $ONLY " != *" $1 "* ]]; then return; fi
  echo "bench-all: $1: $2 (load $(cut -d' ' -f1 /proc/loadavg))" >&2
  bash -o pipefail -c "$2" 2>"$tmp/err" | grep -vE '^(===|---|PASS|ok |make|CGO_ENABLED)' >"$tmp/text" || { cat "$tmp/text" "$tmp/err" >&2; echo "bench-all: $1 failed" >&2; exit 1; }
  { printf '`%s`\n\n```\n' "$2"; cat "$tmp/text"; printf '```\n'; } >"$tmp/out"
  cat "$tmp/out"
  echo
  put "$1"
}

if [ -z "${ONLY-}" ] || [[ " $ONLY " == *" machine "* ]]; then
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
  printf 'Measured in %s at %s on %s cores (%s), Linux %s, %s, load %s at the start.\n' "$(LC_ALL=C date -u '+%B %Y')" "$(git rev-parse --short HEAD)" "$(nproc)" \
    "${cpu:-$(uname -m)}" "$(uname -r | cut -d- -f1)" "$(go env GOVERSION)" "$(cut -d' ' -f1-3 /proc/loadavg)" >"$tmp/out"
  cat "$tmp/out"
  echo
  put machine
fi
table steady "make bench ARGS='-churn 0 -rounds ${ROUNDS:-11} -svg docs/relist.svg'"
table changing "make bench ARGS='-churn 0.01,0.1,0.6 -rounds 3 -resident 5'"
table daemon "make bench-daemon ARGS='-window 30s'"
table evidence "make bench-evidence ARGS='-window 30s'"
table containerd "make bench-containerd"
table soak "make bench-soak"
table profile "make bench-profile"
