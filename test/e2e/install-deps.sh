#!/usr/bin/env bash
# Installs what the end-to-end tests need beside Go, from Debian's packages, and
# nothing where nothing is missing. Needs root only when something is. With
# `observe` those of test/observe and test/page instead, with `cluster` those of
# test/cluster and test/kubelet besides.
set -euo pipefail

# Many runtimes and kubelets at once use up the usual 128 inotify instances of a user.
limit=/proc/sys/fs/inotify/max_user_instances
if [ "$(cat "$limit")" -lt 1024 ]; then
  { echo 1024 >"$limit"; } 2>/dev/null || true # a read-only /proc
fi

# A package and the program, or file, that shows that it is there: on other systems, or
# with packages from elsewhere, the program is what counts.
needed=(
  containerd:containerd runc:runc
  prometheus:prometheus prometheus:promtool
  systemd:systemctl dbus:dbus-daemon
  iproute2:ip util-linux:setpriv util-linux:prlimit util-linux:nsenter procps:pgrep
  dpkg:dpkg-deb rpm:rpmbuild curl:curl
)
if [ "${1-}" = observe ]; then
  needed=(
    prometheus:prometheus prometheus:promtool
    prometheus-alertmanager:prometheus-alertmanager prometheus-alertmanager:amtool
    chromium:chromium fonts-dejavu-core:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
  )
elif [ "${1-}" = cluster ]; then
  needed+=(etcd-server:etcd iptables:iptables prometheus-alertmanager:prometheus-alertmanager victoria-metrics:vmagent)
fi

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=()
for entry in "${needed[@]}"; do
  [ -e "${entry#*:}" ] || command -v "${entry#*:}" >/dev/null || missing+=("${entry%%:*}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || { echo "install-deps: missing: ${missing[*]}, and there is no apt-get here" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "install-deps: missing: ${missing[*]}; run this as root" >&2; exit 1; }

export DEBIAN_FRONTEND=noninteractive
# No service of these packages may start: the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
for try in 1 2 3; do
  if apt-get -qq -o DPkg::Lock::Timeout=300 update &&
    apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >/dev/null; then
    exit 0
  fi
  echo "install-deps: apt-get failed (try $try of 3)" >&2
  sleep 5
done
exit 1
