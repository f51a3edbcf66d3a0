package bootstrap

import (
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"

	"fmt"
	"net"
	"testing"
	"time"
)

// 200 real processes of one host join, which takes no more of any of them than of few: the
// sockets of a rank grow with the logarithm of their number.
func TestManyProcesses(t *testing.T) {
	n := 200
	if testing.Short() || raceEnabled {
		n = 40
	}
	addr := freeAddr(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	meet := []string{EnvUniqueID + "=", EnvAddr + "=" + host, EnvPort + "=" + port, "GOMAXPROCS=1", "GOGC=off"}
	begun := time.Now()
	ranks := make([]*process, n)
	for r := range ranks {
		ranks[r] = start(t, "leave", UniqueID{}, r, n, meet...)
	}
	for r, p := range ranks {
		// Rank 0 has heard from all of them, over connections that end now.
		if got := p.expect("joined"); r > 0 && got.Sockets > 2*len(rounds.Distances(n))+4 {
			t.Errorf("a rank has %d sockets: expected at most %d", got.Sockets, 2*len(rounds.Distances(n))+4)
		}
	}
	t.Logf("%d processes joined in %v", n, time.Since(begun))
	for _, p := range ranks {
		fmt.Fprintln(p.stdin)
	}
	for r, p := range ranks {
		if err := p.Wait(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
