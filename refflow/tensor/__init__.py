"""Tensor, views, autograd (spec/text/tensors.md, spec/text/autograd.md)."""
