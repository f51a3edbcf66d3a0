package remote

import "testing"

// The kernel gives the port to nobody before the program listens there.
func TestFreePort(t *testing.T) {
	first := firstOfAny()
	for range 100 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if port <= 0 || first > 10000 && port >= first {
			t.Fatalf("port %d: expected one below %d, where the kernel's own begin", port, first)
		}
	}
}
