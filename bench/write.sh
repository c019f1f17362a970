#!/usr/bin/env bash
# write.sh NAME FILE COMMAND...: runs a command, and puts what it prints into FILE, if
# that is not empty: between the lines "<!-- bench:NAME -->" and "<!-- end -->".
set -euo pipefail
name=$1 file=$2
shift 2
out=$(mktemp)
trap 'rm -f "$out" "$out.new"' EXIT
failed=0
"$@" | { grep -vE '^(===|---|PASS|ok |FAIL|exit status|    |$)' || true; } | tee "$out" || failed=1
if [ -n "$file" ]; then
  grep -q "^<!-- bench:$name -->\$" "$file" || { echo "write.sh: $file has no line <!-- bench:$name -->" >&2; exit 1; }
  awk -v begin="<!-- bench:$name -->" -v from="$out" -v commit="$(git rev-parse --short HEAD)" '
    $0 == begin { print; print "```"; while ((getline line < from) > 0) print line; print "commit " commit; print "```"; skip = 1; next }
    skip && $0 == "<!-- end -->" { skip = 0 }
    !skip' "$file" >"$out.new"
  cat "$out.new" >"$file"
fi
exit "$failed"
