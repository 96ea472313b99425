"""Adapters on the model hub: `push_adapter` puts one there; `load_adapter` takes it from there by its name."""

from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id

from merope.adapters.finding import ADAPTER_FILE
from merope.adapters.inspection import AdapterReport, inspect_adapter
from merope.errors import MeropeError


def push_adapter(
    path: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    message: str = "Camera adapter",
) -> str:
    """Upload an adapter file, read and checked before, to the hub's repository ``user/name``; the commit's hash.

    ``path`` is a file or a folder on this machine. The repository is made where it is missing, ``private`` or not (None: as
    the account has it); an existing one keeps its visibility, and its README.md if it has one. ``token`` is as
    `huggingface_hub` takes it: None is the one of ``hf auth login``.

    Raises:
        FileNotFoundError: if there is no adapter file at ``path``.
        CheckpointMismatch: if it is damaged.
        ValueError: if ``repo_id`` is no name for a repository.
        MeropeError: if the hub refuses or cannot be reached.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no adapter file at {path}.")
    report = inspect_adapter(path)
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"repo_id must be a name such as 'user/name'; got {repo_id!r}: {error}") from error
    # Any: the methods are wrapped for use from other threads.
    api: Any = HfApi(token=token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        files = [CommitOperationAdd(path_in_repo=ADAPTER_FILE, path_or_fileobj=report.file)]
        if not api.file_exists(repo_id, "README.md"):
            card = model_card(report, repo_id).encode()
            files.append(CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=card))
        return api.create_commit(repo_id, files, commit_message=message).oid
    except HfHubHTTPError as error:
        raise MeropeError(
            f"the hub did not take the adapter as {repo_id}: {error} Log in with `hf auth login` or pass a token= that may "
            "write there."
        ) from error
    except OfflineModeIsEnabled as error:
        raise MeropeError(
            f"{repo_id} was not uploaded: HF_HUB_OFFLINE is set. Unset it and try again."
        ) from error


def model_card(report: AdapterReport, repo_id: str) -> str:
    """The README.md of an adapter's repository."""
    config = report.config
    base = config["base"].get("name") or ""
    header = ["library_name: merope", "pipeline_tag: text-to-video", "tags:", "- camera-control"]
    if base.count("/") == 1:
        header.append(f"base_model: {base}")
    return "\n".join(
        [
            "---",
            *header,
            "---",
            "",
            f"# {repo_id.split('/')[-1]}",
            "",
            f"A camera adapter (`{config['encoding']['name']}`) on {base or 'a Wan transformer'}, for the `merope` package:",
            f"{report.parameters:,} parameters in blocks {', '.join(map(str, config['blocks']))}.",
            "",
            "```python",
            "from merope.adapters import load_adapter",
            "",
            f'adapter = load_adapter("{repo_id}", transformer)',
            "```",
            "",
        ]
    )
