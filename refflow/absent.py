"""Names of PyTorch and OneFlow that refflow does not have, each with what to write instead.

Implements ERR-ABSENT of spec/text/errors.md: reaching for one is an ordinary `AttributeError` (so `hasattr` stays
false) that says why there is none.  One table per owner, which asks `absence` for it; that of `DataLoader` lists arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_LAYOUT = 'flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0)) is spread over two ranks'
_SHAPE = "its shape would depend on data, which refflow does not have"
_ROUNDED = "refflow defines the elementwise functions that it rounds correctly, and this is none of them"
_DATA_PARALLEL = "it is a layout: module.to_global(placement, flow.sbp.broadcast), batches under flow.sbp.split(0)"
_ENLARGE = "repeat() and reshape() enlarge by whole factors"
_TRANSPOSED = f"{_ENLARGE}; a convolution of what they give learns to fill in"
_DEEP = "a convolution of three dimensions is a sum of those of two, one for each slice of the kernel"
_RECURRENT = "write the loop over time with Linear; there is no recurrent layer"
_ENCODER = "flow.nn.Sequential(*[flow.nn.TransformerEncoderLayer(d_model, nhead) for _ in range(n)]) is an encoder"
_LAYERS = "flow.nn.TransformerEncoderLayer and flow.nn.MultiheadAttention are here to build one from"
_UPDATE = "a subclass of flow.optim.Optimizer says what an update is; SGD, Adam, AdamW, Adagrad and RMSprop are here"
_MEASURED = 'it follows measured values; set group["lr"] of optimizer.param_groups between steps'
_RATE = "LambdaLR takes any function of the number of steps"
_READS = "each process reads what its ranks hold of a batch when it is asked for; leave it out"
_ORDER = "shuffle=True with seed= gives the order, and flow.data.Subset takes chosen samples"
_PLACE = 'a string such as "cpu" or a flow.placement says where a tensor lives'

_BOTH: Mapping[str, str] = {  # functions of flow that are methods too
    "nonzero": f"{_SHAPE}; use where(), masked_fill() or a mask times the tensor",
    "masked_select": f"{_SHAPE}; use where() or masked_fill()",
    "unique": f"{_SHAPE}; one_hot(x, n).sum(0) counts classes",
    "bincount": f"{_SHAPE}; one_hot(x, n).sum(0) counts classes",
    "scatter": "two writes to one place have no order between ranks; use scatter_add(), or where() with one_hot()",
    "scatter_": "two writes to one place have no order between ranks; use scatter_add_(), or where() with one_hot()",
    **dict.fromkeys(("log2", "log10", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"), _ROUNDED),
}

_TABLES: Mapping[str, Mapping[str, str]] = {
    "flow": {
        **_BOTH,
        **{name: f"it is flow.nn.functional.{name}()" for name in (
            "binary_cross_entropy", "conv2d", "cross_entropy", "dropout", "embedding", "gelu", "layer_norm", "linear", "mse_loss",
            "nll_loss", "scaled_dot_product_attention", "silu",
        )},
        **{name: f"it is flow.optim.{name}" for name in ("SGD", "Adam", "AdamW")},
        **{name: f"it is flow.nn.{name}" for name in ("Graph", "Module", "Parameter")},
        "autocast": "graph.config.enable_amp() lets a flow.nn.Graph contract in a half type; eagerly, half() and float() convert",
        "isin": "(x.unsqueeze(-1) == values).any(-1) is it",
        "baddbmm": "write it with bmm(): beta * x + alpha * flow.bmm(a, b)",
        "fft": "there is no Fourier transform; products with matrices of cos() and sin() are one",
        "tensordot": "write it with einsum(), or reshape and @",
        "device": _PLACE,
        "cuda": f'{_PLACE}; other back ends are bound with flow.bind_device("cuda", name)',
        "Size": "shapes are plain tuples",
        "FloatTensor": "flow.tensor(data, dtype=flow.float32) makes one",
        "LongTensor": "flow.tensor(data, dtype=flow.int64) makes one",
        "set_default_dtype": "the default is float32; give dtype= where another is wanted",
        "get_default_dtype": "the default is float32",
        "get_rng_state": "flow.default_generator().state is it",
        "set_rng_state": "assign flow.default_generator().state",
        "set_printoptions": "tensor.numpy() prints as NumPy's own print options say",
        "inference_mode": "use flow.no_grad()",
        "compile": "flow.nn.Graph compiles a model to a plan",
        "jit": "flow.nn.Graph compiles a model to a plan",
        "distributed": f"flow.get_rank() and flow.get_world_size() are here, and collectives follow from layouts: {_LAYOUT}",
        "comm": f"tensor.to_global(sbp=...) is each of the collectives: {_LAYOUT}",
        "env": "flow.get_rank() and flow.get_world_size() are here",
        "utils": "data sets and loaders are in flow.data",
        "linalg": "flow.norm() and @ are here",
        "multinomial": "flow.rand() and flow.cumsum() with a comparison draw from weights",
    },
    "Tensor": {
        **_BOTH,
        "type": "dtype tells the element type, to(dtype) converts",
        "is_cuda": "tensor.device is the device type",
        "local_to_global": "to_global(placement, sbp) is for local tensors too",
        "to_consistent": "it is called to_global(placement, sbp)",
        "is_consistent": "it is called is_global",
        "data_ptr": "values are immutable and may be shared, so addresses mean nothing",
        "stride": "memory layout is not part of the semantics",
        "storage": "memory layout is not part of the semantics",
        "is_contiguous": "memory layout is not part of the semantics; contiguous() gives the tensor itself",
        "unfold": "flow.nn.functional.unfold() gives the windows of images",
        "share_memory_": "ranks share nothing; per_rank() and to_global() give each its part",
        "pin_memory": "memory layout is not part of the semantics",
    },
    "nn": {
        **dict.fromkeys(("parallel", "DataParallel"), _DATA_PARALLEL),
        **dict.fromkeys(("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"), _RECURRENT),
        "Conv1d": "use Conv2d with a height of 1: x.unsqueeze(2), kernel_size=(1, k)",
        "Conv3d": _DEEP,
        **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), _TRANSPOSED),
        "Upsample": _ENLARGE,
        "TransformerEncoder": _ENCODER,
        **dict.fromkeys(("Transformer", "TransformerDecoder", "TransformerDecoderLayer"), _LAYERS),
        **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d"), "it is GroupNorm(c, c, affine=False) for c channels"),
        "SyncBatchNorm": "BatchNorm1d and BatchNorm2d take the statistics of the whole batch, however it is split",
    },
    "nn.functional": {
        "conv1d": "use conv2d with a height of 1: x.unsqueeze(2), weight.unsqueeze(2)",
        "conv3d": _DEEP,
        **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _TRANSPOSED),
        "interpolate": _ENLARGE,
    },
    "Module": {
        "compile": "flow.nn.Graph compiles a model to a plan",
        "register_full_backward_hook": "Tensor.register_hook() sees the gradient of a tensor",
        "share_memory": "ranks share nothing; to_global() gives each its part",
        "type": "to(dtype=...) casts the floating point parameters",
    },
    "optim": {
        "LBFGS": f"its line search branches on values; {_UPDATE}",
        **dict.fromkeys(("Adadelta", "Adamax", "LAMB", "NAdam", "RAdam", "Rprop", "SparseAdam"), _UPDATE),
    },
    "optim.lr_scheduler": {
        "OneCycleLR": "SequentialLR of LinearLR and CosineAnnealingLR rises and falls; LambdaLR takes any function of the number of steps",
        **dict.fromkeys(("CosineAnnealingWarmRestarts", "CyclicLR", "MultiplicativeLR", "PolynomialLR"), _RATE),
        "ReduceLROnPlateau": _MEASURED,
    },
    "DataLoader": {
        **dict.fromkeys(("num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn"), _READS),
        "pin_memory": "memory layout is not part of the semantics; leave it out",
        **dict.fromkeys(("sampler", "batch_sampler"), _ORDER),
        "generator": "shuffle=True with seed= gives the order",
        "collate_fn": "batch() of the dataset makes the arrays of several samples",
    },
}  # fmt: skip


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name among `known` that `name` is probably a slip for; None where there is none."""
    from difflib import get_close_matches  # rarely needed

    return next(iter(get_close_matches(name.lower(), list(known), 1)), None)


def absence(owner: str, name: str) -> str:
    """What to write instead of `name`, as the end of a message: "" for a name nobody is known to expect."""
    hint = _TABLES[owner].get(name)
    return "" if hint is None else f": {hint}"
