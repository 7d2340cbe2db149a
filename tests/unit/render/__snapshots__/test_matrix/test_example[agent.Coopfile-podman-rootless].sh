: <<'#'
# coop: run with podman, isolation namespace
# plan sha256:c538024d44a22310d1b05bcbfa94b76d26e286fc5b450abfd60104c6058843db
# GIVES MORE THAN THE PLAN: workspace.protect: 23 protected paths do not exist and can be made: /home/you/shop/.claude/agents, /home/you/shop/.claude/commands, /home/you/shop/.claude/hooks, /home/you/shop/.claude/settings.json, /home/you/shop/.claude/settings.local.json, /home/you/shop/.claude/skills, /home/you/shop/.codex, /home/you/shop/.cursor, /home/you/shop/.devcontainer, /home/you/shop/.envrc, /home/you/shop/.gemini, /home/you/shop/.git/commondir, /home/you/shop/.git/config.worktree, /home/you/shop/.git/modules, /home/you/shop/.gitmodules, /home/you/shop/.husky, /home/you/shop/.idea, /home/you/shop/.mcp.json, /home/you/shop/.vscode, /home/you/shop/Coopfile.local, /home/you/shop/Coopfile.lock, /home/you/shop/deploy.sh, /home/you/shop/infra (instead: `coop run` holds their place meanwhile)
# weaker than the plan: limits.memory: not enforced: this podman has no control group for it (instead: a machine with delegated control groups of version 2)
# weaker than the plan: limits.pids: not enforced: this podman has no control group for it (instead: a machine with delegated control groups of version 2)
# weaker than the plan: limits.tmp: held for each of /tmp, /var/tmp, /run, /dev/shm and the home, not for all together, nor for /dev (instead: limits.memory bounds them all: they are in memory)
# weaker than the plan: seccomp: podman's filter of system calls lets user namespaces and key rings through (instead: docker, gVisor, or the native back end)
# weaker than the plan: sandbox.backend: beside the plan there are the engine's own /sys, names in /dev and /etc, variables such as HOSTNAME, and system calls that the native back end denies: docs/backends.md (instead: the native back end)
# skipped: /home/you/.local/bin: not on this host
# skipped: /home/you/.local/share/claude: not on this host
#

mkdir -p /home/you/.local/state/coop/masks/directory && { [ -e /home/you/.local/state/coop/masks/file ] || : >/home/you/.local/state/coop/masks/file; } \
  && chmod 000 /home/you/.local/state/coop/masks/file /home/you/.local/state/coop/masks/directory

( umask 077 && mkdir -p \
  /home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude \
  /home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.config%2Fclaude )

podman image inspect localhost/coop-tools:35be8a3fbb213aea44cf8f5a >/dev/null 2>&1 || base64 -d <<'ARCHIVE' | podman import - localhost/coop-tools:35be8a3fbb213aea44cf8f5a
H4sIAAAAAAACA+3WXQqCQBSG4bluFe5gfpwfcDdOBQmS4VFq+Y0WBGEXBWcw/B7BM3cOvigTm7Pg
ppIQwjyT97mwDsFqUZiRehmZNzjSUPfpkWKb2iausn/pnv25N4j+3q6tv1bG61d/1g1uvD+l/6vM
0d+5L75/H9IoXI4XsPH+x2HPnf+X/s6gf7b+RK1cV/9QGo3+ufpfaqLrgbe/t/Zzf7tw/vOiUOjP
ru+6obpVKl3zUj7u06kg1nTaCQAAAAAAAAAAAAAAAPgrdy/vgeoAKAAA
ARCHIVE

ANTHROPIC_API_KEY="${ANTHROPIC_API_KEY?}" podman run \
  --rm \
  --name coop-shop-run \
  --interactive \
  --pull never \
  --hostname coop \
  --label coop.managed=true \
  --label coop.plan=sha256:c538024d44a22310d1b05bcbfa94b76d26e286fc5b450abfd60104c6058843db \
  --init \
  --user 1000:1000 \
  --userns keep-id \
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
  --network host \
  --ulimit core=1:1 \
  --tmpfs /tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /var/tmp:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /run:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --tmpfs /home/you:rw,exec,nosuid,nodev,size=536870912,mode=700,U \
  --tmpfs /home/you/.config:rw,exec,nosuid,nodev,size=536870912,mode=700,U \
  --tmpfs /dev/shm:rw,exec,nosuid,nodev,size=536870912,mode=1777 \
  --mount type=bind,source=/usr,target=/usr,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/etc/ssl/certs,target=/etc/ssl/certs,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop,target=/home/you/shop,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.gitconfig,target=/home/you/.gitconfig,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.claude,target=/home/you/.claude,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/share/coop/sessions/shop-ee5fa9f913efbafbc2ce/persist/.config%2Fclaude,target=/home/you/.config/claude,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/.local/state/coop/masks/file,target=/home/you/shop/.env,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/.local/state/coop/masks/directory,target=/home/you/shop/secrets,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git,target=/home/you/shop/.git,bind-propagation=rprivate \
  --mount type=bind,source=/home/you/shop/Coopfile,target=/home/you/shop/Coopfile,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git/config,target=/home/you/shop/.git/config,bind-propagation=rprivate,readonly \
  --mount type=bind,source=/home/you/shop/.git/hooks,target=/home/you/shop/.git/hooks,bind-propagation=rprivate,readonly \
  --workdir /home/you/shop/src \
  --env COOP_CREATED=1700000000 \
  --env COOP_SESSION=shop-ee5fa9f913efbafbc2ce \
  --env COOP_WORKSPACE=/home/you/shop \
  --env EDITOR=vi \
  --env HOME=/home/you \
  --env LANG=C.UTF-8 \
  --env LOGNAME=you \
  --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  --env PWD=/home/you/shop/src \
  --env SHELL=/bin/bash \
  --env TAR_OPTIONS=--no-same-owner \
  --env TERM=xterm-256color \
  --env USER=you \
  --env ANTHROPIC_API_KEY \
  --entrypoint '' \
  localhost/coop-tools:35be8a3fbb213aea44cf8f5a claude
