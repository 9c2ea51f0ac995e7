"""Reports: pure transforms of the lake's tables, and what they look like on paper."""
