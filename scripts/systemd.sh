#!/bin/sh
# Run tests on a machine with systemd and control groups of version 2: `systemd.sh tests/native/test_limits.py`;
# takes what pytest takes. Root is in a service there; the user of the tests has a manager of their own.
#
# Needs root, what `make setup` makes, Debian's mirror, PyPI, and qemu-system-x86, mmdebstrap and e2fsprogs.
# Makes a Debian once, in ~/.cache/coop-systemd (1 GB). Each run boots it anew, without a network, with the
# checkout as it is.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: systemd.sh TEST…" >&2; exit 2; }
place=${XDG_CACHE_HOME:-$HOME/.cache}/coop-systemd
python=${VENV:-.venv}/bin/python
user=60100
packages=linux-image-amd64,systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,kmod,udev,busybox-static
packages=$packages,acl,attr,gcc,libc6-dev,git,iproute2,netcat-openbsd,nftables,openssh-client,passt,procps,psmisc
packages=$packages,python3,python3-venv,slirp4netns,socat,uidmap,ca-certificates,zsh,fish

make_tree() {
    tree=$place/tree
    mmdebstrap --variant=minbase --architectures=amd64 --aptopt='APT::Install-Recommends "false"' \
        --include="$packages" trixie "$tree" http://deb.debian.org/debian
    "$python" -c '
import tomli
project = tomli.load(open("pyproject.toml", "rb"))
print(*project["project"]["dependencies"], *project["dependency-groups"]["dev"], sep="\n")
' | grep -vE '^(build|hatchling|mypy|ruff|mcp|types-)' >"$place/packages"
    "$python" -m pip install -q --target "$tree/usr/local/lib/python3.13/dist-packages" \
        --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --python-version 3.13 \
        --implementation cp --only-binary=:all: -r "$place/packages"
    echo '127.0.0.1 localhost' >"$tree/etc/hosts"
    echo systemd >"$tree/etc/hostname"
    : >"$tree/etc/machine-id"
    chroot "$tree" useradd --create-home --uid "$user" tests
    mkdir -p "$tree/var/lib/systemd/linger" "$tree/share" "$tree/repo"
    touch "$tree/var/lib/systemd/linger/tests"
    units=$tree/etc/systemd/system
    mkdir -p "$units/multi-user.target.wants"
    ln -s ../tests.service "$units/multi-user.target.wants/"
    ln -s /dev/null "$units/serial-getty@ttyS0.service" # the console is the tests'
    cat >"$units/tests.service" <<EOF
[Unit]
Wants=user@$user.service
After=user@$user.service
[Service]
Environment=HOME=/root LANG=C.UTF-8 TERM=dumb TEST_UID=$user TEST_DEADLINE=600
ExecStart=/usr/local/sbin/tests
StandardOutput=tty
TTYPath=/dev/ttyS0
EOF
    cat >"$tree/usr/local/sbin/tests" <<'EOF'
#!/bin/bash
modprobe -aq overlay veth tun nf_tables nft_ct nft_nat nft_reject_inet nft_fib_inet
mount -t 9p -o trans=virtio,version=9p2000.L share /share
tar -x -f /share/checkout.tar -C /repo && cd /repo
uname -srm
mapfile -t arguments </share/arguments
setsid -w python3 -m pytest -p no:cacheprovider "${arguments[@]}" </dev/null 2>&1
echo $? >/share/status
sync
systemctl poweroff --force --force
EOF
    chmod 755 "$tree/usr/local/sbin/tests"
    chroot "$tree" python3 -m compileall -q /usr/local/lib/python3.13 >/dev/null 2>&1 || : # some are for others
}

if [ ! -f "$place/disk" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    make_tree
    cp "$place"/tree/boot/vmlinuz-* "$place/kernel"
    cp "$place"/tree/boot/initrd.img-* "$place/first"
    mke2fs -q -t ext4 -d "$place/tree" "$place/partial" 4G
    mv "$place/partial" "$place/disk"
    rm -rf "$place/tree"
fi

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
git ls-files -z --cached --others --exclude-standard | tar -c -f "$share/checkout.tar" --null -T -
printf '%s\n' "$@" >"$share/arguments"
echo 1 >"$share/status"
nice -n 19 qemu-system-x86_64 -M q35 -accel tcg -cpu max -smp 2 -m 4G -no-reboot -nic none -display none \
    -monitor none -serial stdio -kernel "$place/kernel" -initrd "$place/first" \
    -append 'root=/dev/vda rw console=ttyS0 quiet loglevel=1 systemd.show_status=0' \
    -drive "file=$place/disk,format=raw,if=virtio,snapshot=on" \
    -virtfs "local,path=$share,mount_tag=share,security_model=none" </dev/null
exit "$(cat "$share/status")"
