#!/usr/bin/env bash
# Runs every fuzz test of the module for FUZZTIME, one after another. Go fuzzes
# one function at a time, so this is the loop that `go test` does not have. An
# input that finds something new is made smaller for up to 60 s by default, in
# which nothing is fuzzed: a few tries of that are enough.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go} FUZZTIME=${FUZZTIME:-5s}

n=0 failed=()
while IFS=: read -r file func; do
  pkg=./$(dirname "$file")
  n=$((n + 1))
  echo "fuzz: $pkg $func for $FUZZTIME"
  "$GO" test -run '^$' -fuzz "^$func\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 50x "$pkg" || failed+=("$pkg $func")
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]+' | sed 's/:func /:/' | sort)

if [ ${#failed[@]} -gt 0 ]; then
  printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2
  echo "fuzz: the input is kept in that package's testdata/fuzz: commit it with the fix" >&2
  exit 1
fi
echo "fuzz: $n fuzz tests, all well"
