"""Side-by-side measurements of what starting a sandboxed command costs: ``python -m bench``."""
