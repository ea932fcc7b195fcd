"""`mqpipeline copy`: topics, groups and their offsets of one cluster in another, continuously."""
