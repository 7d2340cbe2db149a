"""Tools for agents: bash and files, in a caller's sandbox or on the host, confirmed and written down."""
