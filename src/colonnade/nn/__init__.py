"""PyTorch's side: the source layer as a module, plans, training loops, estimators, baselines."""

__all__: list[str] = []
