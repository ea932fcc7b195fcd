"""The tools that `mqadmin mcp` offers to assistants: which commands and verbs they are (`offers`), how a call becomes
the run of one (`arguments`, `calls`), the consent that a change needs (`consents`), and the protocol (`server`).

Only `server` needs the package mcp.
"""
