"""The application object and the command that runs it."""
