"""Administration: topics, groups, messages, brokers and name servers."""
