# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
# docker.io/library/node:22-alpine
FROM docker.io/library/node:22-alpine
USER 0:0
WORKDIR /

# packages.apk
RUN ["/bin/sh", "-c", "--", "command -v apk >/dev/null || { echo 'coop: packages.apk: apk is not in this image: use an image of Alpine, or another manager' >&2; exit 127; }; apk add --no-cache git ripgrep"]

# packages.npm
RUN ["/bin/sh", "-c", "--", "command -v npm >/dev/null || { echo 'coop: packages.npm: npm is not in this image: add npm to packages.apt, apk or dnf' >&2; exit 127; }; npm install --global --prefix=/usr/local --no-audit --no-fund --no-update-notifier typescript && npm cache clean --force"]

# setup.run
RUN ["/bin/sh", "-c", "--", "corepack enable"]
