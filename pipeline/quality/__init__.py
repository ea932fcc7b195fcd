"""`mqpipeline quality`: figures of the messages of topics by hour, and limits for them."""
