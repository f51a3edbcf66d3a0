// Package hiptest has tests alone: collectives on AMD's GPUs over several hosts, with adapters that reach the GPUs' memory by
// dma-bufs. Both are emulated.
package hiptest
