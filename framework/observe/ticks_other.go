//go:build !amd64

package observe

func counter() uint64 { return 0 }
