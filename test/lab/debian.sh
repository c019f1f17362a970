# shellcheck shell=bash
# Sourced by the scripts beside it.

# unpack_debian SUITE DIR PACKAGE... unpacks packages of a Debian suite into DIR and
# installs nothing. It asks the mirror that this machine's apt has for its own
# release, by a state and a cache of its own, so that nothing of the machine's
# changes.
unpack_debian() {
  local suite=$1 dir=$2 site apt p keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=
  shift 2
  command -v apt-get >/dev/null || { echo "$suite: there is no apt-get here" >&2; return 1; }
  # shellcheck disable=SC2016 # apt-get fills these in
  site=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "main" && $3 !~ /security/ {print $3; exit}')
  [ -n "$site" ] || { echo "$suite: this machine's apt has no Debian mirror; run apt-get update" >&2; return 1; }
  [ ! -e "$keyring" ] || signed="[signed-by=$keyring]"
  chmod 755 "$dir" # apt reads it as another user
  mkdir -p "$dir/.apt/state/lists/partial" "$dir/.apt/cache/archives/partial" "$dir/.apt/deb"
  echo "deb $signed $site $suite main" >"$dir/.apt/sources.list"
  apt=(apt-get -qq -o Dir::State="$dir/.apt/state" -o Dir::Cache="$dir/.apt/cache" -o Dir::Etc::SourceList="$dir/.apt/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none -o APT::Sandbox::User=root)
  "${apt[@]}" update >&2
  (cd "$dir/.apt/deb" && "${apt[@]}" download "$@" >&2)
  for p in "$dir/.apt/deb"/*.deb; do
    dpkg -x "$p" "$dir"
  done
  rm -rf "$dir/.apt"
}
