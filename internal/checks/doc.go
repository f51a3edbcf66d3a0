// Package checks runs the stages that a change has to pass, several at a time. The stages
// are data (.ci/stages.yaml): what each runs, how long it takes, and where its inputs are
// listed, when it may be skipped.
//
// A stage with a list of inputs is skipped when a proof says that exactly these inputs
// have passed on this machine. The key of a proof holds the bytes of all sources that the
// stage reads, the versions of the tools that it runs, its own definition, the kernel and
// the processor. A new machine has no proofs, so it runs everything.
package checks
