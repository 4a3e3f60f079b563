"""Two-party protocols as roles over a channel: product engines, MatMul, set intersection."""
