"""``python -m mscclpp.run`` is mscclpp-run, as ``python -m torch.distributed.run`` is torchrun."""

from .__main__ import main

if __name__ == "__main__":
    main()
