#!/bin/sh
# Run tests on an emulated aarch64: `arm64.sh tests/attacks/test_syscalls.py`; takes what pytest takes.
#
# Needs root, what `make setup` makes, Debian's mirror, PyPI, and qemu-system-arm, mmdebstrap, e2fsprogs, kmod
# and cpio. Makes a Debian once, in ~/.cache/coop-arm64 (1 GB), of packages that are unpacked only: no foreign
# program runs on this machine, and nothing is registered or mounted. Each run boots it anew with the checkout
# as it is.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: arm64.sh TEST…" >&2; exit 2; }
place=${XDG_CACHE_HOME:-$HOME/.cache}/coop-arm64
python=${VENV:-.venv}/bin/python
packages=linux-image-arm64,busybox-static,dash,debianutils,libc-bin,ncurses-base,ncurses-bin,sysvinit-utils
packages=$packages,base-files,base-passwd,bash,coreutils,diffutils,findutils,grep,hostname,login,mawk,mount,passwd,perl
packages=$packages,procps,sed,tar,gzip,util-linux,kmod,acl,attr,gcc,git,iproute2,libc6-dev,netcat-openbsd,nftables
packages=$packages,openssh-client,passt,python3,python3-venv,slirp4netns,socat,uidmap,ca-certificates,zsh,fish

make_tree() {
    mmdebstrap --variant=extract --architectures=arm64 --include="$packages" \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr bookworm "$place/tree" http://deb.debian.org/debian
    # What the packages' scripts would have made.
    cp "$place/tree/usr/share/base-passwd/passwd.master" "$place/tree/etc/passwd"
    cp "$place/tree/usr/share/base-passwd/group.master" "$place/tree/etc/group"
    echo '127.0.0.1 localhost' >"$place/tree/etc/hosts"
    echo 'include /etc/ld.so.conf.d/*.conf' >"$place/tree/etc/ld.so.conf"
    ln -sf dash "$place/tree/usr/bin/sh"
    ln -sf mawk "$place/tree/usr/bin/awk"
    ln -sf nc.openbsd "$place/tree/usr/bin/nc"
    mkdir -p "$place/tree/usr/local/lib/python3.11/dist-packages"
    "$python" -c '
import tomli
project = tomli.load(open("pyproject.toml", "rb"))
print(*project["project"]["dependencies"], *project["dependency-groups"]["dev"], sep="\n")
' | grep -vE '^(build|hatchling|mypy|ruff|mcp|types-)' >"$place/packages"
    "$python" -m pip install -q --target "$place/tree/usr/local/lib/python3.11/dist-packages" \
        --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --python-version 3.11 \
        --implementation cp --only-binary=:all: -r "$place/packages"
    cat >"$place/tree/sbin/init" <<'EOF'
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm /root /share
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
for place in /dev/shm /run /tmp /repo; do mkdir -p $place; mount -t tmpfs -o mode=1777 tmpfs $place; done
ln -s /proc/self/fd /dev/fd
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/tests && echo $$ >/sys/fs/cgroup/tests/cgroup.procs
echo '+memory +pids +cpu' >/sys/fs/cgroup/cgroup.subtree_control
mount --make-rshared /
ldconfig
modprobe -aq overlay veth tun nf_tables nft_ct nft_nat nft_reject_inet nft_fib_inet
chmod 666 /dev/net/tun
hostname arm64 && ip link set lo up
mount -t 9p -o trans=virtio,version=9p2000.L share /share
tar -x -f /share/checkout.tar -C /repo && cd /repo
uname -srm
mapfile -t arguments </share/arguments
export TEST_DEADLINE=600 # software emulation is ten to twenty times slower
setsid -w python3 -m pytest -p no:cacheprovider "${arguments[@]}" </dev/null 2>&1
echo $? >/share/status
sync
echo o >/proc/sysrq-trigger
sleep infinity
EOF
    chmod 755 "$place/tree/sbin/init"
    # It runs without, but then compiles at every boot. Some of the files are for other versions.
    python3.11 -m compileall -q -s "$place/tree" -p / "$place/tree/usr/lib/python3" \
        "$place/tree/usr/lib/python3.11" "$place/tree/usr/local/lib/python3.11" >/dev/null 2>&1 || :
}

make_first() {
    # What finds the disk: the kernel's drivers of it are modules.
    first=$place/first
    mkdir -p "$first/bin" "$first/dev" "$first/proc" "$first/root" "$first/modules"
    cp "$place/tree/usr/bin/busybox" "$first/bin/"
    depmod -b "$place/tree" "$release"
    for module in virtio_pci virtio_blk ext4 9pnet_virtio 9p; do
        modprobe -d "$place/tree" -S "$release" --show-depends $module
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
        cp "$module" "$first/modules/"
        basename "$module" >>"$first/modules/order"
    done
    cat >"$first/init" <<'EOF'
#!/bin/busybox sh
busybox mount -t devtmpfs devtmpfs /dev
while read -r module; do busybox insmod "/modules/$module"; done </modules/order
until busybox mount -t ext4 /dev/vda /root; do busybox sleep 1; done
busybox mount -o move /dev /root/dev
exec busybox switch_root /root /sbin/init
EOF
    chmod 755 "$first/init"
    (cd "$first" && find . | cpio -o -H newc --quiet | gzip -1 >"$place/first.gz")
}

if [ ! -f "$place/disk" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    make_tree
    release=$(basename "$place"/tree/lib/modules/*)
    make_first
    cp "$place/tree/boot/vmlinuz-$release" "$place/kernel"
    mke2fs -q -t ext4 -d "$place/tree" "$place/partial" 3G
    mv "$place/partial" "$place/disk"
    rm -rf "$place/tree" "$place/first"
fi

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
git ls-files -z --cached --others --exclude-standard | tar -c -f "$share/checkout.tar" --null -T -
printf '%s\n' "$@" >"$share/arguments"
echo 1 >"$share/status"
nice -n 19 qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -smp 2 -m 4G -no-reboot -nic none -display none \
    -monitor none -serial stdio -kernel "$place/kernel" -initrd "$place/first.gz" -append 'console=ttyAMA0 quiet' \
    -drive "file=$place/disk,format=raw,if=virtio,snapshot=on" \
    -virtfs "local,path=$share,mount_tag=share,security_model=none" </dev/null
exit "$(cat "$share/status")"
