"""Sending: the path of one message, producers, transactions, request-reply, message trace."""
