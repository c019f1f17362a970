#!/bin/bash
# build.sh VERSION: build an unmodified kubelet of that Kubernetes version from
# the Go module proxy, build/lab/kubelet-VERSION/kubelet, once, and print its path.
# VERSION is a release (1.36.2) or a minor version (1.36), which means the
# release that the table below names.
#
# A module can require one version of k8s.io/kubernetes only, and the staging
# modules need a replace line each. The module that is built here is written
# from that version's own go.mod, so nothing is pinned twice.
set -euo pipefail
# `make` may be called with flags for plegd's own module.
unset GOFLAGS GOWORK
export GOWORK=off
cd "$(dirname "$0")/../.."
case $1 in
  1.34) version=1.34.4 ;;
  1.35) version=1.35.4 ;;
  1.36) version=1.36.2 ;;
  *.*.*) version=$1 ;;
  *) echo "build.sh: no release is known for Kubernetes $1: give a full version, for example 1.36.2" >&2; exit 1 ;;
esac
# Its process must be called kubelet: that is how plegd finds it.
binary=$PWD/build/lab/kubelet-$version/kubelet
[ ! -x "$binary" ] || { echo "$binary"; exit 0; }

module=$PWD/build/lab/kubelet-$version/module
staging=v0.${version#1.}
mkdir -p "$module"
upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
  echo "module plegd.test/kubelet"
  grep -E '^go [0-9.]+$' "$upstream"
  grep -E '^godebug ' "$upstream" || true
  echo "require k8s.io/kubernetes v$version"
  # k8s.io/api => ./staging/src/k8s.io/api   becomes   k8s.io/api => k8s.io/api v0.36.2
  sed -n "s#^\(replace \)\?[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging/src/.*#replace \2 => \2 $staging#p" "$upstream"
} > "$module/go.mod"
cat > "$module/tools.go" <<'GO'
//go:build tools

package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
GO
minor=${version#1.}
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
done
echo "build.sh: building the kubelet v$version (about 8 CPU-minutes, once)" >&2
CGO_ENABLED=0 nice -n 5 go build -C "$module" -mod=mod -trimpath -buildvcs=false -ldflags "$flags" -o "$binary.new" k8s.io/kubernetes/cmd/kubelet >&2
mv "$binary.new" "$binary"
echo "$binary"
