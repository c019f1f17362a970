#!/usr/bin/env bash
# release.sh: makes everything of a release in dist/, from what `make build-all packages
# image-oci` have left there. Called by `make release`, which sets VERSION, BUILD_DATE and
# SOURCE_DATE_EPOCH. The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${VERSION:?}" "${BUILD_DATE:?}" "${SOURCE_DATE_EPOCH:?}" "${GO:=go}" "${HELM:?}"
export LC_ALL=C TZ=UTC
umask 022
version=${VERSION#v}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pack DIR FILE.tar.gz: the directory below $work, with nothing of this machine in it.
pack() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -C "$work" -cf - "$1" | gzip -9n >"dist/$2"
}

# publish DIR: the image and the runbook links of PUBLISHER (owner/repository on GitHub, its
# images on REGISTRY) in place of the defaults. Empty: the files stay as they are.
publish() {
  [ -n "${PUBLISHER:-}" ] || return 0
  owner=${PUBLISHER%%/*}
  grep -rlZ -e localhost/plegd -e github.com/plegd/plegd "$1" | xargs -0r sed -i \
    -e "s#localhost/plegd#${REGISTRY:-ghcr.io}/${owner,,}/plegd#g" -e "s#https://github.com/plegd/plegd/#https://github.com/$PUBLISHER/#g"
}

for arch in amd64 arm64; do
  dir=plegd-$version.linux-$arch
  install -D -m 755 "build/linux-$arch/plegd" "$work/$dir/plegd"
  install -m 755 -t "$work/$dir" deploy/kubectl/kubectl-plegd
  install -m 644 -t "$work/$dir" LICENSE README.md CHANGELOG.md deploy/systemd/plegd.service deploy/systemd/plegd.socket deploy/systemd/plegd.default
  pack "$dir" "$dir.tar.gz"
done

# helm wants the version of Semantic Versioning.
mkdir -p "$work/plegd"
cp -r deploy/helm/plegd/. "$work/plegd"
sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: \"$version\"/" "$work/plegd/Chart.yaml"
publish "$work/plegd"
find "$work/plegd" -type f -exec chmod 644 {} +
pack plegd "plegd-chart-$version.tgz"
"$HELM" show chart "dist/plegd-chart-$version.tgz" | grep -qx "version: $version" || { echo "make release: helm does not read the chart's version $version" >&2; exit 1; }

mkdir -p "$work/plegd-monitoring-$version"
cp -r deploy/prometheus deploy/alertmanager deploy/grafana deploy/mixin "$work/plegd-monitoring-$version"
publish "$work/plegd-monitoring-$version"
find "$work/plegd-monitoring-$version" \( -name '*.go' -o -name 'go.*' \) -delete
find "$work/plegd-monitoring-$version" -type f -exec chmod 644 {} +
pack "plegd-monitoring-$version" "plegd-monitoring-$version.tar.gz"

mv dist/plegd.oci.tar "dist/plegd-$version.oci.tar"
"$GO" run ./deploy/release -o "dist/plegd-$version.spdx.json" -version "$version" -created "$BUILD_DATE" build/linux-amd64/plegd build/linux-arm64/plegd

cd dist
sha256sum plegd* >"$work/sha256sums.txt"
mv "$work/sha256sums.txt" .
ls -l
