#!/usr/bin/env bash
# flags.sh PLEGD: every flag of `plegd run` stands in the unit's default file and
# in the docs, with its default, and nothing else does.
set -euo pipefail
plegd=$(realpath "$1")
cd "$(dirname "$0")/.."
default=deploy/systemd/plegd.default docs=docs/operating.md
bad=0
complain() {
  echo "flags: $*" >&2
  bad=1
}

flags=$("$plegd" run --help | sed -n 's/^ *\(-., \)\?--\([a-z][a-z.-]*\).*/\2/p' | grep -vx help)
[ -n "$flags" ] || { echo "flags: plegd run --help lists none" >&2; exit 1; }
variables=''
for f in $flags; do
  v=PLEGD_$(tr 'a-z.-' 'A-Z__' <<<"$f")
  variables+=$v$'\n'
  grep -q "^#$v=" "$default" || complain "$default lacks $v"
  grep -q "^| \`--$f\` " "$docs" || complain "$docs lacks --$f"
done
for v in $(sed -n 's/^#\?\(PLEGD_[A-Z_]*\)=.*/\1/p' "$default"); do
  grep -qx "$v" <<<"$variables" || complain "$default has $v, which plegd run has not"
done
for f in $(sed -n 's/^| `--\([a-z.-]*\)` .*/\1/p' "$docs"); do
  grep -qx -- "$f" <<<"$flags" || complain "$docs has --$f, which plegd run has not"
done
[ "$bad" = 0 ] || exit 1
echo "flags: $(wc -l <<<"$flags") flags, all in $default and $docs"
