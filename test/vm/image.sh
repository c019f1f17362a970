#!/usr/bin/env bash
# Makes, once, the Debian system that the virtual machine of test/vm boots:
#
#   test/vm/image.sh
#
# prints the directory, below build/lab, that then holds root.img (an ext4 root
# without a partition table), vmlinuz, initrd.img and the key for ssh. Nothing of
# plegd is in it: the tests install the package.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=bookworm
packages=(
  systemd-sysv udev dbus linux-image-cloud-amd64
  containerd runc openssh-server
  iproute2 e2fsprogs util-linux
)
out=$PWD/build/lab/vm

mkdir -p build/lab
exec 9>build/lab/.vm.lock
flock 9
# Another version of this script makes another image.
want=$(sha256sum test/vm/image.sh | cut -d' ' -f1)
if [ "$(cat "$out/.complete" 2>/dev/null)" = "$want" ]; then
  echo "$out"
  exit
fi
for program in mmdebstrap mke2fs ssh-keygen; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || { echo "image.sh: $program is missing: run test/e2e/install-deps.sh vm" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "image.sh: needs root: it installs Debian packages into a directory" >&2; exit 1; }
echo "image.sh: making the image of the virtual machine, once (minutes)" >&2
rm -rf "$out"
mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf --one-file-system "$tmp"' EXIT
chmod 755 "$tmp" # apt reads it as another user
root=$tmp/root

# The mirror is the one that this machine's apt uses, with its settings for downloads.
# shellcheck disable=SC2016 # apt-get fills these in
site=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
  awk '$1 == "Debian" && $2 == "main" && $3 !~ /security/ {print $3; exit}')
[ -n "$site" ] || { echo "image.sh: this machine's apt has no Debian mirror; run apt-get update" >&2; exit 1; }
apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries)' >"$tmp/apt.conf" || :

# A short list of modules in the initrd: it is made and read in a fraction of the time.
IFS=,
nice mmdebstrap --quiet --variant=minbase --include="${packages[*]}" --aptopt="$tmp/apt.conf" \
  --aptopt='Acquire::Languages "none"' --aptopt='Apt::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"' \
  --essential-hook='echo MODULES=list >"$1/etc/initramfs-tools/conf.d/lab"' \
  --essential-hook='printf "%s\n" virtio_pci virtio_blk ext4 >"$1/usr/share/initramfs-tools/modules.d/lab"' \
  "$suite" "$root" "deb $site $suite main" >&2
unset IFS

# Log in by key only; a fixed address; the second disk holds containerd's state.
ssh-keygen -q -t ed25519 -N '' -C plegd-vm-test -f "$out/key"
install -D -m 600 "$out/key.pub" "$root/root/.ssh/authorized_keys"
echo node1 >"$root/etc/hostname"
printf '127.0.0.1 localhost node1\n' >"$root/etc/hosts"
printf '%s\n' '/dev/vda / ext4 defaults,errors=remount-ro 0 1' \
  'LABEL=containerd /var/lib/containerd ext4 defaults,nofail 0 2' >"$root/etc/fstab"
mkdir -p "$root/var/lib/containerd" "$root/var/log/journal"
install -D -m 644 /dev/stdin "$root/etc/systemd/network/10-lab.network" <<'CONF'
[Match]
Type=ether
[Network]
Address=10.0.2.15/24
LinkLocalAddressing=no
IPv6AcceptRA=no
CONF
install -D -m 644 /dev/stdin "$root/etc/systemd/system/containerd.service.d/lab.conf" <<'CONF'
[Unit]
RequiresMountsFor=/var/lib/containerd
CONF
# On a busy host a boot takes minutes.
install -D -m 644 /dev/stdin "$root/etc/systemd/system.conf.d/lab.conf" <<'CONF'
[Manager]
DefaultTimeoutStartSec=15min
DefaultDeviceTimeoutSec=15min
CONF
# Timers of the distribution (apt, fsck) are no part of a test.
chroot "$root" systemctl --quiet enable systemd-networkd ssh containerd
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
  systemd-networkd-wait-online.service
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*

cp "$root"/boot/vmlinuz-* "$out/vmlinuz"
cp "$root"/boot/initrd.img-* "$out/initrd.img"
PATH=$PATH:/usr/sbin:/sbin
mke2fs -q -t ext4 -E lazy_itable_init=1 -d "$root" "$out/root.img" 2G
echo "$want" >"$out/.complete"
echo "$out"
