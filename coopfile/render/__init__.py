"""Launch → text: what a back end that is not ours is told, byte for byte, without touching it."""
