// Package inference has operators that serving engines use between the layers of a model: a reduction over the ranks of a
// tensor-parallel group, and in the same kernel what follows it. They run over any transport whose memory all ranks
// reach, on GPUs as nodes of CUDA graphs too, and on the host with the same results.
package inference
