#!/usr/bin/env bash
# Puts a dockerd beside the machine's own programs, once:
#
#   test/lab/dockerd.sh
#
# prints the directory, below build/lab, that then holds dockerd and the containerd
# that it starts: those of the packages docker.io and containerd of Debian trixie
# (26.1.5 and 1.7), unpacked and not installed. runc stays the machine's own.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/lab/debian.sh
. test/lab/debian.sh
suite=trixie
out=$PWD/build/lab/dockerd-$suite

mkdir -p build/lab
# Test packages run side by side: one of them does it, the others wait.
exec 9>"build/lab/.dockerd-$suite.lock"
flock 9
if [ -e "$out/.complete" ]; then
  echo "$out"
  exit
fi
rm -rf "$out"
mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unpack_debian "$suite" "$tmp" docker.io containerd
cp "$tmp"/usr/sbin/dockerd "$tmp"/usr/bin/{containerd,containerd-shim-runc-v2} "$out/"
"$out/dockerd" --version >&2
touch "$out/.complete"
echo "$out"
