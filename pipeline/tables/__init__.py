"""`mqpipeline table`: keeps a table of a topic."""
