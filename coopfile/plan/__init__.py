"""Settings to plan to launch: resolving, binding, comparing, caching."""
