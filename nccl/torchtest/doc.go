// Package torchtest runs PyTorch, unchanged, on libnccl.so.2. Its tests need a torch of the registry, which is large:
// scripts/torch-test.sh makes a virtual environment with it, and names its interpreter in TORCH_TEST_PYTHON. Elsewhere
// they are skipped.
package torchtest
