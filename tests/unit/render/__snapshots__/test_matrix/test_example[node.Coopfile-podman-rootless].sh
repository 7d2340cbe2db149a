: <<'#'
# coop: run with podman, isolation namespace
# plan sha256:3ba93ca78da8b925f8b66838b861ac8e22534947444eba8420a88e57c1c889eb
# GIVES MORE THAN THE PLAN: network.mode: podman's own network also reaches this machine, its neighbours and metadata services (instead: the native back end; or network.mode = "proxy" with a list of hosts, or network.mode = "none")
# GIVES MORE THAN THE PLAN: workspace.protect: 21 protected paths do not exist and can be made: /home/you/shop/.claude/agents, /home/you/shop/.claude/commands, /home/you/shop/.claude/hooks, /home/you/shop/.claude/settings.json, /home/you/shop/.claude/settings.local.json, /home/you/shop/.claude/skills, /home/you/shop/.codex, /home/you/shop/.cursor, /home/you/shop/.devcontainer, /home/you/shop/.envrc, /home/you/shop/.gemini, /home/you/shop/.git/commondir, /home/you/shop/.git/config.worktree, /home/you/shop/.git/modules, /home/you/shop/.gitmodules, /home/you/shop/.husky, /home/you/shop/.idea, /home/you/shop/.mcp.json, /home/you/shop/.vscode, /home/you/shop/Coopfile.local, /home/you/shop/Coopfile.lock (instead: `coop run` holds their place meanwhile)
# GIVES MORE THAN THE PLAN: setup.network: the build also reaches this machine, its neighbours and metadata services (instead: setup.network = "none")
# weaker than the plan: limits.memory: not enforced: this podman has no control group for it (instead: a machine with delegated control groups of version 2)
# weaker than the plan: limits.pids: not enforced: this podman has no control group for it (instead: a machine with delegated control groups of version 2)
# weaker than the plan: limits.tmp: held for each of /tmp, /var/tmp, /run, /dev/shm and the home, not for all together, nor for /dev (instead: limits.memory bounds them all: they are in memory)
# weaker than the plan: seccomp: podman's filter of system calls lets user namespaces and key rings through (instead: docker, gVisor, or the native back end)
# weaker than the plan: sandbox.backend: beside the plan there are the engine's own /sys, names in /dev and /etc, variables such as HOSTNAME, and system calls that the native back end denies: docs/backends.md (instead: the native back end)
#

mkdir -p /home/you/.local/state/coop/masks/directory && { [ -e /home/you/.local/state/coop/masks/file ] || : >/home/you/.local/state/coop/masks/file; } \
  && chmod 000 /home/you/.local/state/coop/masks/file /home/you/.local/state/coop/masks/directory

( umask 077 && mkdir -p \
  /home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude \
  /home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/npm/.npm )

podman image inspect localhost/coop/node:6954b8252067e479d5448b14 >/dev/null 2>&1 || podman build \
  --tag localhost/coop/node:6954b8252067e479d5448b14 \
  --pull=missing - <<'DOCKERFILE'
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
DOCKERFILE

podman run \
  --rm \
  --name coop-shop-run \
  --interactive \
  --pull never \
  --hostname coop \
  --label coop.managed=true \
  --label coop.plan=sha256:3ba93ca78da8b925f8b66838b861ac8e22534947444eba8420a88e57c1c889eb \
  --init \
  --user 0:0 \
  --cap-drop ALL \
  --security-opt no-new-privileges \
  --read-only \
  --ipc private \
  --log-driver none \
  --no-healthcheck \
  --read-only-tmpfs=false \
  --http-proxy=false \
  --image-volume ignore \
  --security-opt mask=/proc/acpi:/proc/asound:/proc/kallsyms:/proc/kcore:/proc/keys:/proc/kmsg:/proc/kpagecgroup:/proc/kpagecount:/proc/kpageflags:/proc/latency_stats:/proc/sched_debug:/proc/scsi:/proc/slabinfo:/proc/sysrq-trigger:/proc/timer_list:/proc/vmallocinfo \
  --network bridge \
  --publish 127.0.0.1:3000:3000 \
  --publish 127.0.0.1:8080:80 \
  --ulimit core=1:1 \
  --tmpfs /tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /var/tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /run:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /root:rw,exec,nosuid,nodev,size=536870912,mode=700 \
  --tmpfs /dev/shm:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --mount type=bind,source=/home/you/shop,target=/workspace,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude,target=/root/.claude,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/share/coop/caches/shop-2dbcbd52572e91d7b284/npm/.npm,target=/root/.npm,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/state/coop/masks/file,target=/workspace/.env,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/state/coop/masks/directory,target=/workspace/secrets,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git,target=/workspace/.git,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/Coopfile,target=/workspace/Coopfile,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git/config,target=/workspace/.git/config,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git/hooks,target=/workspace/.git/hooks,bind-propagation=rprivate,readonly \
  --workdir /workspace/src \
  --env COOP_CREATED=1700000000 \
  --env COOP_SESSION=shop-ee5fa9f913efbafbc2ce \
  --env COOP_WORKSPACE=/workspace \
  --env HOME=/root \
  --env LANG=C.UTF-8 \
  --env LOGNAME=root \
  --env PWD=/workspace/src \
  --env SHELL=/bin/sh \
  --env TAR_OPTIONS=--no-same-owner \
  --env TERM=xterm-256color \
  --env USER=root \
  --env npm_config_cache=/root/.npm \
  --entrypoint '' \
  localhost/coop/node:6954b8252067e479d5448b14 /bin/sh
