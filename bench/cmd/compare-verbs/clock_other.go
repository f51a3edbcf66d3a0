//go:build !amd64

package main

import "time"

var began = time.Now()

// cycles counts nanoseconds, where no counter of the processor is known.
func cycles() uint64 { return uint64(time.Since(began)) }
