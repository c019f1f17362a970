#!/usr/bin/env bash
# Fails if a file uses a word for which plain English has a better one.
set -euo pipefail
cd "$(dirname "$0")/.."
checked=(README.md CONTRIBUTING.md SECURITY.md .github bench cmd demo deploy docs internal test)
words='tells? whether|\banew\b|\bmend(s|ed)?\b|\bweather\b|\bwitness|standstill|stood still|of plegd.s([.,;:)]|$| (in|is|that|as|are|was|which|with|to|on|at)\b)|goes on\b|no more\b|once bitten|that of which'
literal='no more (than|of|often|memory)' # as a comparison

found=$(git grep -nE "$words" -- "${checked[@]}" ':!*/testdata/*' | grep -vE "$literal" || true)
# Where these words are gone already.
found+=$(git grep -nIE '\b([Ww]hoever|is dear|[Ww]holly)\b|a fault is made' -- README.md CONTRIBUTING.md SECURITY.md .github bench demo docs internal/fakeruntime test \
  ':!*/testdata/*' ':!docs/reasons' ':!docs/results' ':!docs/metrics.md' || true)
found+=$(git grep -nIE '\b(in force|tells of|said of it|[Nn]othing says|looked (again )?whether|than any)\b' -- "${checked[@]}" \
  ':!*/testdata/*' ':!docs/results' || true)
found+=$(git grep -nIE '\b([Ww]hoever|[Ww]hatever|says nothing|go on|is told|told of|are told|of itself)\b' -- cmd deploy docs internal \
  ':!*_test.go' ':!*/testdata/*' ':!docs/results' || true)
found+=$(git grep -nE '^.{121,}' -- 'cmd/*.go' 'internal/*.go' ':!*_test.go' ':!internal/cri/errors.go' || true)
if [ -n "$found" ]; then
  echo "$found" >&2
  echo "make lint: plainer words: reports whether, again, fix, transient condition, hang probe, pause, plegd's, continues, no longer, any client that, effective, expensive, reports, a fault is injected, any, proves nothing, receives; product lines have at most 120 columns" >&2
  exit 1
fi
