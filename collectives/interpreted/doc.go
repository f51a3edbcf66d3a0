// Package interpreted has tests that execute the committed PTX of the collectives, instruction by instruction, with all
// ranks in one process: see docs/interpreter.md. They fill the structures of package kernelargs as the engine does.
package interpreted
