"""The records that programs use."""
