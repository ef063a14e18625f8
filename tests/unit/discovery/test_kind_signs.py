"""Signs of a job's kind in the commands of its process and of those that it descends from."""

from __future__ import annotations

import pytest

from tpumon.discovery.host.kind_signs import kind_signs_of


@pytest.mark.parametrize(
    ("commands", "signs"),
    [
        (["python3 train.py", "bash", None], ()),
        (["python3 -m ipykernel_launcher"], ("notebook",)),
        (["python3 train.py", "python3 -m ipykernel_launcher"], ("notebook",)),
        (["python3 colab_kernel_launcher.py"], ("notebook",)),
        (["python3 ipython"], ("notebook",)),
        (["python3 train.py", "python3 jupyter-lab"], ()),
        (["python3 vllm"], ("server",)),
        (["VLLM::EngineCore", "python3 api.py"], ("server",)),
        (["python3 -m jetstream.entrypoints.http.api_server"], ("server",)),
        (["python3 -m sgl_jax.launch_server"], ("server",)),
        (["python3 maxengine_server.py"], ("server",)),
        (["python3 train_vllm.py"], ()),
    ],
)
def test_what_the_commands_of_a_process_tree_say(commands: list[str | None], signs: tuple[str, ...]) -> None:
    assert kind_signs_of(commands) == signs
