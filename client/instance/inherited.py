"""What a client says in a process that has inherited it by a fork."""

INHERITED = (
    "this client was made in another process, before a fork: make a new one in this process (multiprocessing: in the "
    "worker or its initializer; gunicorn: post_fork; Celery: worker_process_init)"
)
