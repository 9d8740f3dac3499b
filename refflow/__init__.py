"""refflow: the reference runtime of global tensors."""
