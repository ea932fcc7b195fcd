"""`mqpipeline compact`: the last message of each key, in a table or in a topic."""
