: <<'#'
# coop: run with docker, isolation namespace
# plan sha256:01299227f7086d1d51606fede11f4ed6a283bb76839e0d8e098046d70ea720af
# GIVES MORE THAN THE PLAN: workspace.protect: 21 protected paths do not exist and can be made: /home/you/shop/.claude/agents, /home/you/shop/.claude/commands, /home/you/shop/.claude/hooks, /home/you/shop/.claude/settings.json, /home/you/shop/.claude/settings.local.json, /home/you/shop/.claude/skills, /home/you/shop/.codex, /home/you/shop/.cursor, /home/you/shop/.devcontainer, /home/you/shop/.envrc, /home/you/shop/.gemini, /home/you/shop/.git/commondir, /home/you/shop/.git/config.worktree, /home/you/shop/.git/modules, /home/you/shop/.gitmodules, /home/you/shop/.husky, /home/you/shop/.idea, /home/you/shop/.mcp.json, /home/you/shop/.vscode, /home/you/shop/Coopfile.local, /home/you/shop/Coopfile.lock (instead: `coop run` holds their place meanwhile)
# GIVES MORE THAN THE PLAN: setup.network: the build also reaches this machine, its neighbours and metadata services (instead: setup.network = "none")
# weaker than the plan: session.user: inside, you are user 1000 as outside: this docker is run by root, and shares its ids (instead: a rootless docker)
# weaker than the plan: limits.tmp: held for each of /tmp, /var/tmp, /run, /dev/shm and the home, not for all together, nor for /dev (instead: limits.memory bounds them all: they are in memory)
# weaker than the plan: sandbox.backend: beside the plan there are the engine's own /sys, names in /dev and /etc, variables such as HOSTNAME, and system calls that the native back end denies: docs/backends.md (instead: the native back end)
# weaker than the plan: session.caches: apt: nothing to share, for a run installs no packages of the system (instead: packages: what is built has caches of its own)
# weaker than the plan: session.commit: a run of its own throws away what it changes of the root file system (instead: coop run --session NAME: what a session changes can be kept)
#

mkdir -p /home/you/.local/state/coop/masks/directory && { [ -e /home/you/.local/state/coop/masks/file ] || : >/home/you/.local/state/coop/masks/file; } \
  && chmod 000 /home/you/.local/state/coop/masks/file /home/you/.local/state/coop/masks/directory

( umask 077 && mkdir -p \
  /home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude \
  /home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/cargo/.cargo%2Fgit \
  /home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/cargo/.cargo%2Fregistry \
  /home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/npm/.npm \
  /home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/pip/.cache%2Fpip )

docker image inspect localhost/coop/debian:280f65258b69af303b45fe40 >/dev/null 2>&1 || docker build \
  --tag localhost/coop/debian:280f65258b69af303b45fe40 \
  --pull=false \
  --force-rm - <<'DOCKERFILE'
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
DOCKERFILE

docker run \
  --rm \
  --name coop-shop-run \
  --interactive \
  --pull never \
  --hostname coop \
  --label coop.managed=true \
  --label coop.plan=sha256:01299227f7086d1d51606fede11f4ed6a283bb76839e0d8e098046d70ea720af \
  --init \
  --user 1000:1000 \
  --cap-drop ALL \
  --security-opt no-new-privileges \
  --read-only \
  --ipc private \
  --log-driver none \
  --no-healthcheck \
  --network none \
  --dns 0.0.0.0 \
  --dns-search . \
  --ulimit core=1:1 \
  --memory 2147483648b \
  --memory-swap 2147483648b \
  --pids-limit 512 \
  --tmpfs /tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /var/tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /run:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /home/you:rw,exec,nosuid,nodev,size=536870912,mode=700,uid=1000,gid=1000 \
  --tmpfs /home/you/.cargo:rw,exec,nosuid,nodev,size=536870912,mode=700,uid=1000,gid=1000 \
  --tmpfs /home/you/.cache:rw,exec,nosuid,nodev,size=536870912,mode=700,uid=1000,gid=1000 \
  --tmpfs /dev/shm:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --mount type=bind,source=/home/you/shop,target=/src,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/state/coop/masks/file,target=/src/.env,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/state/coop/masks/directory,target=/src/secrets,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git,target=/src/.git,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/Coopfile,target=/src/Coopfile,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude,target=/home/you/.claude,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/npm/.npm,target=/home/you/.npm,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/.git/config,target=/src/.git/config,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git/hooks,target=/src/.git/hooks,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/cargo/.cargo%2Fgit,target=/home/you/.cargo/git,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/cargo/.cargo%2Fregistry,target=/home/you/.cargo/registry,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/pip/.cache%2Fpip,target=/home/you/.cache/pip,bind-propagation=rprivate \
  --workdir /src/src \
  --env CARGO_HOME=/home/you/.cargo \
  --env COOP_CREATED=1700000000 \
  --env COOP_SESSION=shop-ee5fa9f913efbafbc2ce \
  --env COOP_WORKSPACE=/src \
  --env HOME=/home/you \
  --env LANG=C.UTF-8 \
  --env LOGNAME=you \
  --env PIP_CACHE_DIR=/home/you/.cache/pip \
  --env PWD=/src/src \
  --env SHELL=/bin/sh \
  --env TAR_OPTIONS=--no-same-owner \
  --env TERM=xterm-256color \
  --env USER=you \
  --env npm_config_cache=/home/you/.npm \
  --entrypoint '' \
  localhost/coop/debian:280f65258b69af303b45fe40 claude
