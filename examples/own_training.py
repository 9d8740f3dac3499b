"""A training script of your own: data, model, layout, loop, checkpoint.  However it is run, the last line is the same:

    refflow run examples/own_training.py                                  # one rank
    refflow run --ranks 4 examples/own_training.py                        # four virtual ranks
    refflow run --ranks 4 examples/own_training.py --graph                # each step traced once
    REFFLOW_BACKEND=numba refflow run examples/own_training.py --graph    # and compiled (extra accel)
    mpiexec -n 2 python -m mpi4py -m refflow run examples/own_training.py # two processes (extra mpi)

With `--checkpoint FILE` it writes its state after each epoch, and goes on from there when run again, on any number of ranks.
"""

import argparse
from pathlib import Path

import refflow as flow
from refflow import nn
from refflow.world import current_world

EPOCHS, BATCH = 8, 128
parser = argparse.ArgumentParser()
parser.add_argument("--graph", action="store_true")
parser.add_argument("--checkpoint", type=Path)
asked = parser.parse_args()

# Where: all the ranks there are, whether `refflow run --ranks` or `mpiexec -n` made them.
placement = flow.placement("cpu", ranks=range(flow.get_world_size()))
SPLIT, BROADCAST = flow.sbp.split(0), flow.sbp.broadcast

# Data: batches are global tensors whose rows the ranks share out.
digits = flow.data.load_digits()
samples = flow.data.TensorDataset(flow.tensor(digits.train_images.reshape(-1, 64)), flow.tensor(digits.train_labels))
loader = flow.data.DataLoader(samples, BATCH, shuffle=True, drop_last=True, seed=7, placement=placement, sbp=SPLIT)

# Model: the same numbers on any number of ranks.  A function of a parameter's name and value in place of BROADCAST is
# tensor parallelism.
flow.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 10)).to_global(placement, BROADCAST)
optimizer = flow.optim.AdamW(model.parameters(), lr=1e-2)
schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * (len(samples) // BATCH))


def eager_step(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    """As in PyTorch."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss


class Step(nn.Graph):
    """The same, traced in its first call.  build() calls backward(); an optimizer it was given is stepped by the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


# All that the rest of a run depends on: weights, optimizer, schedule, where batches are, where random numbers are.
parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": loader}
generator = flow.default_generator()
if asked.checkpoint is not None and asked.checkpoint.exists():
    state = flow.load(asked.checkpoint, placement=placement)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    generator.state = tuple(state["generator"])

step = Step() if asked.graph else eager_step
while loader.epoch < EPOCHS:
    for x, y in loader:
        loss = step(x, y)
    if asked.checkpoint is not None:
        states = {name: part.state_dict() for name, part in parts.items()}
        flow.save({**states, "generator": list(generator.state)}, asked.checkpoint)

model.eval()
with flow.no_grad():
    images = flow.tensor(digits.test_images.reshape(-1, 64), placement=placement, sbp=SPLIT)
    labels = flow.tensor(digits.test_labels, placement=placement, sbp=SPLIT)
    right = (model(images).argmax(1) == labels).sum().item()
line = f"{right} of {len(labels)} right; SHA-256 of the weights {flow.digest(model.state_dict())}"
if 0 in current_world().owned:  # once, also where every rank is a process
    print(line)
