"""The Linux runner: namespaces, mounts, Landlock, seccomp, cgroups, PID 1."""
