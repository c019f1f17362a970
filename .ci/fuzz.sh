#!/usr/bin/env bash
# Runs every fuzz test of the module, one after another: go test fuzzes one
# function at a time. FUZZTIME is a number of executions (2000x) or a duration
# (10m). With a duration the fuzzer sometimes fails with "context deadline
# exceeded" when the time is over (https://go.dev/issue/75804), so CI uses a number.
# An input that finds something new is minimized for up to 60 s by default, in
# which nothing is fuzzed: 50 tries are enough.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go} FUZZTIME=${FUZZTIME:-2000x}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cache=$("$GO" env GOCACHE)/fuzz
module=$("$GO" list -m)

n=0 failed=() built=
while IFS=: read -r file func; do
  pkg=$(dirname "$file")
  if [ "$pkg" != "$built" ]; then # one build for all fuzz tests of a package
    "$GO" test -c -fuzz . -o "$tmp/test" "./$pkg"
    built=$pkg
  fi
  n=$((n + 1))
  echo "fuzz: $pkg $func for $FUZZTIME"
  (cd "$pkg" && "$tmp/test" -test.run '^$' -test.fuzz "^$func\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 50x \
    -test.fuzzcachedir "$cache/$module/$pkg") || failed+=("$pkg $func")
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]+' | sed 's/:func /:/' | sort)

if [ ${#failed[@]} -gt 0 ]; then
  printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2
  echo "fuzz: the input is kept in that package's testdata/fuzz: commit it with the fix" >&2
  exit 1
fi
echo "fuzz: $n fuzz tests passed"
