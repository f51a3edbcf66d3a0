// Package python tests the Python package mscclpp of this folder, on each Python that the machine has.
package python
