#!/usr/bin/env bash
# build.sh: makes dist/plegd_VERSION_ARCH.deb and dist/plegd-VERSION.ARCH.rpm for
# amd64 and arm64 from build/linux-ARCH/plegd. Called by `make packages`, which
# sets VERSION and SOURCE_DATE_EPOCH. The same commit gives the same bytes. PACKAGES names the
# formats; without it those are made whose tool is there: dpkg-deb, rpmbuild (Debian: dpkg, rpm).
# build.sh --tools only checks the tools. Go makes the man pages.
set -euo pipefail
cd "$(dirname "$0")/../.."
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
here=deploy/packages

declare -A tools=([deb]=dpkg-deb [rpm]=rpmbuild)
formats=()
for format in ${PACKAGES:-deb rpm}; do
  if command -v "${tools[$format]}" >/dev/null; then
    formats+=("$format")
  elif [ -n "${PACKAGES:-}" ]; then
    echo "make packages: there is no ${tools[$format]} here for the .$format (Debian: apt-get install dpkg rpm)" >&2
    exit 1
  else
    echo "make packages: no .$format: there is no ${tools[$format]} here (Debian: apt-get install dpkg rpm)" >&2
  fi
done
[ ${#formats[@]} -gt 0 ] || { echo "make packages: neither dpkg-deb nor rpmbuild is here" >&2; exit 1; }
[ "${1:-}" != --tools ] || exit 0
: "${VERSION:?}" "${SOURCE_DATE_EPOCH:?}" "${GO:=go}"

# 0.1.0-rc.1 sorts before 0.1.0 (~), five commits after 0.1.0 after it (+).
# Neither format allows a - in its version.
version=$(sed -E 's/-([0-9]+)-g/+\1.g/; s/-dirty$/.dirty/; s/-/~/g' <<<"${VERSION#v}")
[[ $version =~ ^[0-9][A-Za-z0-9.+~]*$ ]] || { echo "make packages: VERSION $VERSION makes no package version" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist
"$GO" build -tags gendocs -ldflags "-X github.com/prometheus/common/version.Version=$VERSION" -o "$work/plegd" ./cmd/plegd
mkdir "$work/man8" "$work/completions"
"$work/plegd" gendocs "$work/man8"
gzip -9n "$work"/man8/*.8
for shell in bash zsh fish; do "$work/plegd" completion "$shell" >"$work/completions/$shell"; done

# stage ROOT ARCH ZSH: the files that both packages have.
stage() {
  local root=$1
  install -D -m 755 "build/linux-$2/plegd" "$root/usr/bin/plegd"
  install -D -m 644 -t "$root/usr/lib/systemd/system" deploy/systemd/plegd.service deploy/systemd/plegd.socket
  install -D -m 644 deploy/systemd/plegd.default "$root/etc/default/plegd"
  install -D -m 644 -t "$root/usr/share/man/man8" "$work"/man8/*.8.gz
  install -D -m 644 "$work/completions/bash" "$root/usr/share/bash-completion/completions/plegd"
  install -D -m 644 "$work/completions/zsh" "$root/usr/share/zsh/$3/_plegd"
  install -D -m 644 "$work/completions/fish" "$root/usr/share/fish/vendor_completions.d/plegd.fish"
  install -D -m 644 deploy/node-problem-detector/plegd.json "$root/usr/share/plegd/node-problem-detector.json"
  install -D -m 644 -t "$root/usr/share/plegd" deploy/prometheus/plegd.rules.yml deploy/prometheus/plegd.recording.yml
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

deb() {
  local arch=$1 root=$work/deb-$1
  mkdir -p "$root/DEBIAN"
  stage "$root" "$arch" vendor-completions
  install -D -m 644 "$here/deb/copyright" "$root/usr/share/doc/plegd/copyright"
  gzip -9n <CHANGELOG.md >"$work/changelog.gz"
  install -m 644 "$work/changelog.gz" "$root/usr/share/doc/plegd/changelog.gz"
  install -m 755 -t "$root/DEBIAN" "$here"/deb/{postinst,prerm,postrm}
  install -m 644 "$here/deb/conffiles" "$root/DEBIAN/conffiles"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  sed "s/@VERSION@/$version-1/; s/@ARCH@/$arch/; s/@SIZE@/$(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f 1)/" \
    "$here/deb/control" >"$root/DEBIAN/control"
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$root" "dist/plegd_$version-1_$arch.deb" >/dev/null
}

rpm() {
  local arch=$1 root=$work/rpm-$1 target=x86_64
  [ "$arch" = amd64 ] || target=aarch64
  stage "$root" "$arch" site-functions
  install -D -m 644 LICENSE "$root/usr/share/licenses/plegd/LICENSE"
  install -D -m 644 -t "$root/usr/share/doc/plegd" README.md CHANGELOG.md
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  # Debian's rpmbuild knows no other machine's name without --target; nothing is
  # compiled here.
  rpmbuild --quiet -bb --target "$target-linux" --define "plegd_version $version" --define "plegd_root $(realpath "$root")" \
    --define "_topdir $work/rpmbuild-$arch" --define "_rpmdir $PWD/dist" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    --define '_buildhost plegd' --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
    --define '_binary_payload w6.xzdio' --define '__os_install_post %{nil}' --define 'debug_package %{nil}' --define '_build_id_links none' \
    "$here/rpm/plegd.spec"
}

rm -f dist/plegd[_-]*.deb dist/plegd-*.rpm
for arch in amd64 arm64; do
  for format in "${formats[@]}"; do "$format" "$arch"; done
done
shopt -s nullglob
cd dist
made=(plegd_*.deb plegd-*.rpm)
ls -l "${made[@]}"
sha256sum "${made[@]}"
