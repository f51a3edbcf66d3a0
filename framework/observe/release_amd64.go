//go:build amd64 && !race

package observe

// release stores a word behind all earlier stores. On this processor each store does that, while the one of sync/atomic waits
// until all of them are visible, which takes longer than all else of a call that is observed.
//
//go:noescape
func release(word *uint64, value uint64)

func storeRelease(word *uint64, value uint64) { release(word, value) }
