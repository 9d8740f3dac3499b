"""Models: the networks that `refflow train` trains, each with the layout that tensor parallelism gives its weights.

`digits` has two small networks for images, `gpt` a language model.  They are built from refflow.nn alone and know nothing
of ranks; a layout is a function from a parameter's name to the sbp along the axis of the mesh that cuts weights.
"""

from __future__ import annotations

from .digits import cnn, cnn_tensor_parallel, mlp, mlp_tensor_parallel
from .gpt import GPT, gpt_tensor_parallel

__all__ = ["GPT", "cnn", "cnn_tensor_parallel", "gpt_tensor_parallel", "mlp", "mlp_tensor_parallel"]
