"""Functions on tensors, PyTorch's and OneFlow's names, composed of primitives (spec/text/primitives.md)."""
