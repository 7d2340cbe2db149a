"""The life of a sandbox that outlives one command, over any back end."""
