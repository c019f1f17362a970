#!/usr/bin/env bash
# Puts another version of containerd beside the machine's own, once:
#
#   test/lab/containerd.sh VERSION
#
# prints the directory, below build/lab, that then holds containerd, its shim and
# ctr. Where VERSION is X.Y.Z they are built from source; where it is the name of a
# Debian suite (bookworm has 1.6, trixie 1.7) they are those of its package,
# unpacked and not installed. runc stays the machine's own.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/lab/debian.sh
. test/lab/debian.sh
version=${1:?usage: test/lab/containerd.sh VERSION|SUITE}
out=$PWD/build/lab/containerd-$version
programs=(containerd containerd-shim-runc-v2 ctr)

mkdir -p build/lab
# Test packages run side by side: one of them does it, the others wait.
exec 9>"build/lab/.containerd-$version.lock"
flock 9
if [ -e "$out/.complete" ]; then
  echo "$out"
  exit
fi
rm -rf "$out"
mkdir -p "$out"

# build builds in a module of its own: go install refuses a module whose go.mod
# excludes versions, as that of 2.1 does.
build() {
  echo "containerd.sh: building containerd $version, once (minutes)" >&2
  local targets=() p tmp
  for p in "${programs[@]}"; do
    targets+=("github.com/containerd/containerd/v2/cmd/$p")
  done
  tmp=$(mktemp -d)
  # shellcheck disable=SC2064 # the directory of now
  trap "rm -rf '$tmp'" EXIT
  (
    cd "$tmp"
    export GOFLAGS=-mod=mod CGO_ENABLED=0
    go mod init containerd.lab >&2
    go get "${targets[@]/%/@v$version}" >&2
    nice go build -trimpath -o "$out/" \
      -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=v$version" "${targets[@]}" >&2
  )
}

unpack() {
  local tmp p
  tmp=$(mktemp -d)
  # shellcheck disable=SC2064 # the directory of now
  trap "rm -rf '$tmp'" EXIT
  unpack_debian "$version" "$tmp" containerd
  for p in "${programs[@]}"; do
    cp "$tmp/usr/bin/$p" "$out/"
  done
}

case $version in
[0-9]*) build ;;
*) unpack ;;
esac
"$out/containerd" --version >&2
touch "$out/.complete"
echo "$out"
