"""Who may do what: identity, trust, and what trust gives."""
