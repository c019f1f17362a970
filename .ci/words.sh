#!/usr/bin/env bash
# Fails if a file uses a word for which plain English has a better one.
set -euo pipefail
cd "$(dirname "$0")/.."
checked=(README.md CONTRIBUTING.md SECURITY.md .github bench cmd demo deploy docs internal test)
words='tells? whether|\banew\b|\bmend(s|ed)?\b|\bweather\b|\bwitness|standstill|stood still|of plegd.s([.,;:)]|$| (in|is|that|as|are|was|which|with|to|on|at)\b)|goes on\b|no more\b'
literal='no more (than|of|often|memory)' # as a comparison

found=$(git grep -nE "$words" -- "${checked[@]}" ':!*/testdata/*' | grep -vE "$literal" || true)
if [ -n "$found" ]; then
  echo "$found" >&2
  echo "make lint: plainer words: reports whether, again, fix, transient condition, hang probe, pause, plegd's, continues, no longer" >&2
  exit 1
fi
