// Package moe brings the rows of tokens to the ranks of the experts that they have chosen, and the weighted sums of what the
// experts make of them back. A row goes once to each rank, counts stay on the device, and both kernels may be captured
// into graphs. They run where all ranks reach each other's memory, on GPUs and on the host with the same results, and over networks by way of the host, where
// they cannot be captured.
package moe
