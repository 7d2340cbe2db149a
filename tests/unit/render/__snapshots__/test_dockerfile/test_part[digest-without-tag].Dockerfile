# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
FROM ghcr.io/team/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
USER 0:0
WORKDIR /

# packages.apt
RUN ["/bin/sh", "-c", "--", "command -v apt-get >/dev/null || { echo 'coop: packages.apt: apt-get is not in this image: use an image of Debian or Ubuntu, or another manager' >&2; exit 127; }; apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git && apt-get clean && rm -rf /var/lib/apt/lists/*"]

# setup.run
RUN ["/bin/sh", "-c", "--", "true"]

# agent.install
RUN ["/bin/sh", "-c", "--", "npm install"]
