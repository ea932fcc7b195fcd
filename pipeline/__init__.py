"""Jobs of `mqpipeline` that need no Spark."""
