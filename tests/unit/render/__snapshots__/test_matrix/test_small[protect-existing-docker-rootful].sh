: <<'#'
# coop: run with docker, isolation namespace
# plan sha256:82ab4937c64f0749d5663371ac2429d701b0a0ae36cb4ec948c81e7c4ee2ab30
# GIVES MORE THAN THE PLAN: workspace.protect: 21 protected paths do not exist and can be made: /home/you/shop/.claude/agents, /home/you/shop/.claude/commands, /home/you/shop/.claude/hooks, /home/you/shop/.claude/settings.json, /home/you/shop/.claude/settings.local.json, /home/you/shop/.claude/skills, /home/you/shop/.codex, /home/you/shop/.cursor, /home/you/shop/.devcontainer, /home/you/shop/.envrc, /home/you/shop/.gemini, /home/you/shop/.git/commondir, /home/you/shop/.git/config.worktree, /home/you/shop/.git/modules, /home/you/shop/.gitmodules, /home/you/shop/.husky, /home/you/shop/.idea, /home/you/shop/.mcp.json, /home/you/shop/.vscode, /home/you/shop/Coopfile.local, /home/you/shop/Coopfile.lock (instead: `coop run` holds their place meanwhile)
# weaker than the plan: session.user: inside, you are user 1000 as outside: this docker is run by root, and shares its ids (instead: a rootless docker)
# weaker than the plan: limits.tmp: held for each of /tmp, /var/tmp, /run, /dev/shm and the home, not for all together, nor for /dev (instead: limits.memory bounds them all: they are in memory)
# weaker than the plan: sandbox.backend: beside the plan there are the engine's own /sys, names in /dev and /etc, variables such as HOSTNAME, and system calls that the native back end denies: docs/backends.md (instead: the native back end)
#

mkdir -p /home/you/.local/state/coop/masks/directory && { [ -e /home/you/.local/state/coop/masks/file ] || : >/home/you/.local/state/coop/masks/file; } \
  && chmod 000 /home/you/.local/state/coop/masks/file /home/you/.local/state/coop/masks/directory

( umask 077 && mkdir -p \
  /home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude )

docker image inspect localhost/coop-tools:35be8a3fbb213aea44cf8f5a >/dev/null 2>&1 || base64 -d <<'ARCHIVE' | docker import - localhost/coop-tools:35be8a3fbb213aea44cf8f5a
H4sIAAAAAAACA+3WXQqCQBSG4bluFe5gfpwfcDdOBQmS4VFq+Y0WBGEXBWcw/B7BM3cOvigTm7Pg
ppIQwjyT97mwDsFqUZiRehmZNzjSUPfpkWKb2iausn/pnv25N4j+3q6tv1bG61d/1g1uvD+l/6vM
0d+5L75/H9IoXI4XsPH+x2HPnf+X/s6gf7b+RK1cV/9QGo3+ufpfaqLrgbe/t/Zzf7tw/vOiUOjP
ru+6obpVKl3zUj7u06kg1nTaCQAAAAAAAAAAAAAAAPgrdy/vgeoAKAAA
ARCHIVE

docker run \
  --rm \
  --name coop-shop-run \
  --interactive \
  --pull never \
  --hostname coop \
  --label coop.managed=true \
  --label coop.plan=sha256:82ab4937c64f0749d5663371ac2429d701b0a0ae36cb4ec948c81e7c4ee2ab30 \
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
  --mount type=bind,source=/usr,target=/usr,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/etc/ssl/certs,target=/etc/ssl/certs,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop,target=/workspace,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/state/coop/masks/file,target=/workspace/.env,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/state/coop/masks/directory,target=/workspace/secrets,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git,target=/workspace/.git,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/Coopfile,target=/workspace/Coopfile,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/Makefile,target=/workspace/Makefile,bind-propagation=rprivate,readonly \
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
  --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  --env PWD=/workspace/src \
  --env SHELL=/bin/bash \
  --env TAR_OPTIONS=--no-same-owner \
  --env TERM=xterm-256color \
  --env USER=you \
  --entrypoint '' \
  localhost/coop-tools:35be8a3fbb213aea44cf8f5a /bin/bash
