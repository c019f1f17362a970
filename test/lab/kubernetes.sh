#!/bin/bash
# kubernetes.sh kubelet|cluster VERSION: build programs of that Kubernetes version,
# unmodified, from the Go module proxy, once, and print where they are.
#   kubelet: build/lab/kubelet-VERSION/kubelet
#   cluster: the directory build/lab/kubernetes-VERSION with kube-apiserver,
#            kube-controller-manager, kube-scheduler, kubelet and kubectl
# VERSION is a release (1.36.2) or a minor version (1.36), which means the
# release that the table below names.
#
# A module can require one version of k8s.io/kubernetes only, and the staging
# modules need a replace line each. The module that is built here is written
# from that version's own go.mod, so nothing is pinned twice.
set -euo pipefail
# `make` may be called with flags for plegd's own module.
unset GOFLAGS
export GOWORK=off
cd "$(dirname "$0")/../.."
what=$1
case $2 in
  1.33) version=1.33.13 ;;
  1.34) version=1.34.4 ;;
  1.35) version=1.35.4 ;;
  1.36) version=1.36.2 ;;
  1.37) version=1.37.2 ;;
  *.*.*) version=$2 ;;
  *) echo "kubernetes.sh: no release is known for Kubernetes $2: give a full version, for example 1.36.2" >&2; exit 1 ;;
esac
case $what in
  # Its process must be called kubelet: that is how plegd finds it.
  kubelet) dir=$PWD/build/lab/kubelet-$version built=$dir/kubelet package=k8s.io/kubernetes/cmd/kubelet ;;
  cluster) dir=$PWD/build/lab/kubernetes-$version built=$dir package=. ;;
  *) echo "kubernetes.sh: kubelet or cluster, not $what" >&2; exit 1 ;;
esac
# The last thing that is made.
[ ! -x "$dir/kubelet" ] || { echo "$built"; exit 0; }

module=$dir/module
staging=v0.${version#1.}
mkdir -p "$module"
upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
  echo "module plegd.test/kubernetes"
  grep -E '^go [0-9.]+$' "$upstream"
  grep -E '^godebug ' "$upstream" || true
  echo "require k8s.io/kubernetes v$version"
  # k8s.io/api => ./staging/src/k8s.io/api   becomes   k8s.io/api => k8s.io/api v0.36.2
  sed -n "s#^\(replace \)\?[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging/src/.*#replace \2 => \2 $staging#p" "$upstream"
} > "$module/go.mod"
if [ "$what" = cluster ]; then
  cp test/lab/testdata/kubernetes/main.go "$module/"
else
  cat > "$module/tools.go" <<'GO'
//go:build tools

package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
GO
fi
minor=${version#1.}
flags="-s -w"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $p.gitVersion=v$version -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*}"
done
echo "kubernetes.sh: building the $what of Kubernetes v$version (about 8 CPU-minutes, once)" >&2
CGO_ENABLED=0 nice -n 5 go build -C "$module" -mod=mod -trimpath -buildvcs=false -ldflags "$flags" -o "$dir/new" "$package" >&2
if [ "$what" = cluster ]; then
  for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do ln -f "$dir/new" "$dir/$name"; done
fi
mv "$dir/new" "$dir/kubelet"
echo "$built"
