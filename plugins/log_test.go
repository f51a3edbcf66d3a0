package plugins

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
)

// buffer is a log that tests can look at.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// testLog prints the log of a failed test.
func testLog(t *testing.T) *slog.Logger {
	b := &buffer{}
	t.Cleanup(func() {
		if t.Failed() && b.String() != "" {
			t.Logf("log:\n%s", b)
		}
	})
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
