//go:build !amd64 || race

package observe

import "sync/atomic"

func storeRelease(word *uint64, value uint64) { atomic.StoreUint64(word, value) }
