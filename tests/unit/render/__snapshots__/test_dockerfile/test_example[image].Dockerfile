# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
# docker.io/library/debian:bookworm-slim
FROM docker.io/library/debian:bookworm-slim
USER 0:0
WORKDIR /

# packages.apt
RUN ["/bin/sh", "-c", "--", "command -v apt-get >/dev/null || { echo 'coop: packages.apt: apt-get is not in this image: use an image of Debian or Ubuntu, or another manager' >&2; exit 127; }; apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates git ripgrep && apt-get clean && rm -rf /var/lib/apt/lists/*"]

# packages.pip
RUN ["/bin/sh", "-c", "--", "python3 -m pip --version >/dev/null 2>&1 || { echo 'coop: packages.pip: pip is not in this image: add python3-pip (py3-pip for apk) to packages.apt, apk or dnf' >&2; exit 127; }; PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir --no-input --disable-pip-version-check pytest==8.4.1"]

# packages.npm
RUN ["/bin/sh", "-c", "--", "command -v npm >/dev/null || { echo 'coop: packages.npm: npm is not in this image: add npm to packages.apt, apk or dnf' >&2; exit 127; }; npm install --global --prefix=/usr/local --no-audit --no-fund --no-update-notifier typescript && npm cache clean --force"]

# packages.cargo
RUN ["/bin/sh", "-c", "--", "command -v cargo >/dev/null || { echo 'coop: packages.cargo: cargo is not in this image: add cargo to packages.apt, apk or dnf' >&2; exit 127; }; cargo install --root=/usr/local --locked fd-find && rm -rf \"${CARGO_HOME:-$HOME/.cargo}/registry\" \"${CARGO_HOME:-$HOME/.cargo}/git\""]

# setup.run
RUN ["/bin/sh", "-c", "--", "git config --system init.defaultBranch main"]

# agent.install
RUN ["/bin/sh", "-c", "--", "npm install -g @anthropic-ai/claude-code"]
