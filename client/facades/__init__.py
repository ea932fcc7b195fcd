"""The client for programs that do not run trio: one table of methods, two ways to wait."""
