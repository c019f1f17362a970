#!/usr/bin/env bash
# write.sh NAME FILE COMMAND...: runs a command, and puts the table that it prints into FILE, if
# that is not empty: between the lines "<!-- bench:NAME -->" and "<!-- end -->". What a test
# logs, as which limit was broken, is shown and not part of the table.
set -euo pipefail
name=$1 file=$2
shift 2
out=$(mktemp)
trap 'rm -f "$out" "$out.table" "$out.new"' EXIT
failed=0
"$@" | { grep -vE '^(===|---|PASS|ok )' || true; } | tee "$out" || failed=1
if [ -n "$file" ]; then
  grep -q "^<!-- bench:$name -->\$" "$file" || { echo "write.sh: $file has no line <!-- bench:$name -->" >&2; exit 1; }
  grep -vE '^(FAIL|exit status|    |$)' "$out" >"$out.table"
  awk -v begin="<!-- bench:$name -->" -v from="$out.table" -v commit="$(git rev-parse --short HEAD)" '
    $0 == begin { print; print "```"; while ((getline line < from) > 0) print line; print "commit " commit; print "```"; skip = 1; next }
    skip && $0 == "<!-- end -->" { skip = 0 }
    !skip' "$file" >"$out.new"
  cat "$out.new" >"$file"
fi
exit "$failed"
