"""A PyTorch/XLA training loop with a profiler server."""

from __future__ import annotations

import contextlib
import os
import time

import options
import progress

progress.die_with_parent()
told = options.Options()
args = told.now
os.environ["PJRT_DEVICE"] = "CPU"

import torch  # noqa: E402  after the line that binds this process to its parent
import torch_xla  # noqa: E402
import torch_xla.debug.profiler as xp  # noqa: E402

device = torch_xla.device()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, wanted = torch.randn(64, 32).to(device), torch.randn(64, 1).to(device)


def train_step() -> None:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), wanted).backward()
    optimizer.step()


for _ in range(3):  # compiled before anybody measures
    train_step()
    torch_xla.sync(wait=True)
server = xp.start_server(args.port)

done = progress.Progress()
while True:
    started_s = time.monotonic()
    time.sleep(args.input_delay_ms / 1000)
    with xp.StepTrace("train", step_num=done.steps) if args.annotate else contextlib.nullcontext():
        train_step()
    if not args.annotate:  # the end of a StepTrace does the same
        torch_xla.sync(wait=True)
    progress.pace(started_s, args.step_ms)
    done.step_done()
    if told.changed():
        args = told.now
