: <<'#'
# coop: run with docker, isolation namespace
# plan sha256:a9a0996330915c16e85b955660a509dd6ae8e06f11397f0b50c41555883a60e5
# GIVES MORE THAN THE PLAN: workspace.protect: 21 protected paths do not exist and can be made: /home/you/shop/.claude/agents, /home/you/shop/.claude/commands, /home/you/shop/.claude/hooks, /home/you/shop/.claude/settings.json, /home/you/shop/.claude/settings.local.json, /home/you/shop/.claude/skills, /home/you/shop/.codex, /home/you/shop/.cursor, /home/you/shop/.devcontainer, /home/you/shop/.envrc, /home/you/shop/.gemini, /home/you/shop/.git/commondir, /home/you/shop/.git/config.worktree, /home/you/shop/.git/modules, /home/you/shop/.gitmodules, /home/you/shop/.husky, /home/you/shop/.idea, /home/you/shop/.mcp.json, /home/you/shop/.vscode, /home/you/shop/Coopfile.local, /home/you/shop/Coopfile.lock (instead: `coop run` holds their place meanwhile)
# weaker than the plan: session.user: inside, you are user 1000 as outside: this docker is run by root, and shares its ids (instead: a rootless docker)
# weaker than the plan: limits.tmp: held for each of /tmp, /var/tmp, /run, /dev/shm and the home, not for all together, nor for /dev (instead: limits.memory bounds them all: they are in memory)
# weaker than the plan: sandbox.backend: beside the plan there are the engine's own /sys, names in /dev and /etc, variables such as HOSTNAME, and system calls that the native back end denies: docs/backends.md (instead: the native back end)
#

mkdir -p /home/you/.local/state/coop/masks/directory && { [ -e /home/you/.local/state/coop/masks/file ] || : >/home/you/.local/state/coop/masks/file; } \
  && chmod 000 /home/you/.local/state/coop/masks/file /home/you/.local/state/coop/masks/directory

( umask 077 && mkdir -p \
  /home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude )

docker image inspect localhost/coop/debian:245b6156a1a64eed7c09a336 >/dev/null 2>&1 || docker build \
  --tag localhost/coop/debian:245b6156a1a64eed7c09a336 \
  --pull=false \
  --force-rm \
  --network none - <<'DOCKERFILE'
# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
# docker.io/library/debian:latest
FROM docker.io/library/debian:latest
USER 0:0
WORKDIR /

# packages.apt
RUN ["/bin/sh", "-c", "--", "command -v apt-get >/dev/null || { echo 'coop: packages.apt: apt-get is not in this image: use an image of Debian or Ubuntu, or another manager' >&2; exit 127; }; apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git && apt-get clean && rm -rf /var/lib/apt/lists/*"]
DOCKERFILE

docker run \
  --rm \
  --name coop-shop-run \
  --interactive \
  --pull never \
  --hostname coop \
  --label coop.managed=true \
  --label coop.plan=sha256:a9a0996330915c16e85b955660a509dd6ae8e06f11397f0b50c41555883a60e5 \
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
  --tmpfs /dev/shm:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --mount type=bind,source=/home/you/shop,target=/workspace,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/state/coop/masks/file,target=/workspace/.env,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/state/coop/masks/directory,target=/workspace/secrets,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git,target=/workspace/.git,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/Coopfile,target=/workspace/Coopfile,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude,target=/home/you/.claude,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/.git/config,target=/workspace/.git/config,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git/hooks,target=/workspace/.git/hooks,bind-propagation=rprivate,readonly \
  --workdir /workspace/src \
  --env COOP_CREATED=1700000000 \
  --env COOP_SESSION=shop-ee5fa9f913efbafbc2ce \
  --env COOP_WORKSPACE=/workspace \
  --env HOME=/home/you \
  --env LANG=C.UTF-8 \
  --env LOGNAME=you \
  --env PWD=/workspace/src \
  --env SHELL=/bin/sh \
  --env TAR_OPTIONS=--no-same-owner \
  --env TERM=xterm-256color \
  --env USER=you \
  --entrypoint '' \
  localhost/coop/debian:245b6156a1a64eed7c09a336 /bin/sh
