#!/usr/bin/env bash
# compare.sh REF: the Go benchmarks at REF and in the working tree, run in turns
# (so that a machine that warms up does so for both), compared by benchstat.
set -euo pipefail
cd "$(dirname "$0")/.."
ref=$1
# The column is called after the commit.
ref_name=${ref//[^A-Za-z0-9._-]/_}
GO=${GO:-go} COUNT=${COUNT:-6}
: "${BENCHSTAT:?module@version of benchstat}"

commit=$(git rev-parse --verify --quiet "$ref^{commit}") || { echo "bench-compare: there is no commit $ref" >&2; exit 1; }
tmp=$(mktemp -d)
old=$tmp/old
cleanup() {
  git worktree remove --force "$old" >/dev/null 2>&1 || true
  rm -rf "$tmp"
}
trap cleanup EXIT
git worktree add --quiet --detach "$old" "$commit"

# Packages with benchmarks, in both trees.
packages() { (cd "$1" && git grep --untracked -l '^func Benchmark' -- '*_test.go' 2>/dev/null | xargs -r -n1 dirname | sort -u); }
common=$(comm -12 <(packages "$old") <(packages .))
[ -n "$common" ] || { echo "bench-compare: $ref and this tree have no package with benchmarks in common" >&2; exit 1; }

bench() { # tree, package, output
  if ! (cd "$1" && "$GO" test -run '^$' -bench . -benchmem -count 1 -benchtime "${BENCHTIME:-0.5s}" "./$2") >"$tmp/last" 2>&1; then
    echo "bench-compare: the benchmarks of $2 failed in $1:" >&2
    cat "$tmp/last" >&2
    exit 1
  fi
  cat "$tmp/last" >>"$3"
}
for i in $(seq "$COUNT"); do
  echo "bench-compare: round $i of $COUNT" >&2
  for p in $common; do
    bench "$old" "$p" "$tmp/$ref_name.txt"
    bench . "$p" "$tmp/new.txt"
  done
done
cd "$tmp" # the columns are headed by the paths
"$GO" run "$BENCHSTAT" "$ref_name.txt" new.txt
