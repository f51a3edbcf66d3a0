package harness

import (
	"syscall"
	"time"
)

// Kill ends the plugin of a rank and waits until the host knows.
func (t *T) Kill(r *Rank) (took time.Duration) {
	p := r.Side.Process
	start := time.Now()
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("kill the plugin of rank %d, process %d: %v", r.N, p.PID, err)
	}
	select {
	case <-p.Gone:
	case <-time.After(t.Options.CallLimit):
		t.Fatalf("the plugin of rank %d was killed, and its host does not know after %v", r.N, t.Options.CallLimit)
	}
	return time.Since(start)
}
