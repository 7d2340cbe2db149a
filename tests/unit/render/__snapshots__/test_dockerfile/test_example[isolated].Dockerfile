# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
# docker.io/library/fedora:42
FROM docker.io/library/fedora:42
USER 0:0
WORKDIR /

# packages.dnf
RUN ["/bin/sh", "-c", "--", "command -v dnf >/dev/null || { echo 'coop: packages.dnf: dnf is not in this image: use an image of Fedora or its kin, or another manager' >&2; exit 127; }; dnf install -y --setopt=install_weak_deps=False gcc make && dnf clean all && rm -rf /var/cache/dnf /var/cache/libdnf5"]
