"""The proxy beside a sandbox: what it lets through, and to where."""
