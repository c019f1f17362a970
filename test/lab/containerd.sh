#!/usr/bin/env bash
# Puts another version of containerd beside the machine's own, once:
#
#   test/lab/containerd.sh VERSION
#
# prints the directory, below build/lab, that then holds containerd, its shim and
# ctr. Where VERSION is X.Y.Z they are built from source by go install; where it
# is the name of a Debian suite (trixie has 1.7) they are those of its package,
# unpacked and not installed. runc stays the machine's own.
set -euo pipefail
cd "$(dirname "$0")/../.."
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

build() {
  echo "containerd.sh: building containerd $version, once (minutes)" >&2
  local targets=() p
  for p in "${programs[@]}"; do
    targets+=("github.com/containerd/containerd/v2/cmd/$p@v$version")
  done
  GOBIN=$out GOFLAGS='' CGO_ENABLED=0 nice go install -trimpath \
    -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=v$version" "${targets[@]}" >&2
}

# unpack asks the mirror that this machine's apt has for its own release, by a
# state and a cache of its own, so that nothing of the machine's changes.
unpack() {
  local site tmp apt keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=
  command -v apt-get >/dev/null || { echo "containerd.sh: $version: there is no apt-get here" >&2; return 1; }
  # shellcheck disable=SC2016 # apt-get fills these in
  site=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "main" && $3 !~ /security/ {print $3; exit}')
  [ -n "$site" ] || { echo "containerd.sh: $version: this machine's apt has no Debian mirror; run apt-get update" >&2; return 1; }
  [ ! -e "$keyring" ] || signed="[signed-by=$keyring]"
  tmp=$(mktemp -d)
  # shellcheck disable=SC2064 # the directory of now
  trap "rm -rf '$tmp'" EXIT
  chmod 755 "$tmp" # apt reads it as another user
  mkdir -p "$tmp/state/lists/partial" "$tmp/cache/archives/partial" "$tmp/deb"
  echo "deb $signed $site $version main" >"$tmp/sources.list"
  apt=(apt-get -qq -o Dir::State="$tmp/state" -o Dir::Cache="$tmp/cache" -o Dir::Etc::SourceList="$tmp/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none -o APT::Sandbox::User=root)
  "${apt[@]}" update >&2
  (cd "$tmp/deb" && "${apt[@]}" download containerd >&2)
  dpkg -x "$tmp"/deb/containerd_*.deb "$tmp/root"
  local p
  for p in "${programs[@]}"; do
    cp "$tmp/root/usr/bin/$p" "$out/"
  done
}

case $version in
[0-9]*) build ;;
*) unpack ;;
esac
"$out/containerd" --version >&2
touch "$out/.complete"
echo "$out"
