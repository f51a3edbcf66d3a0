package mscclpp_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// slowName is the name by which the test binary is a plugin that does not release anything.
const slowName = "slow-plugin"

// slow is shm, whose Close takes longer than any host waits.
type slow struct{ *shm.Transport }

func (slow) Close(ctx context.Context, _ framework.ID) error {
	<-ctx.Done()
	return ctx.Err()
}

func serveSlowly() {
	plugins.Serve(func(c shm.Config) (framework.Transport, error) {
		t, err := shm.New(c)
		if err != nil {
			return nil, err
		}
		return slow{t.(*shm.Transport)}, nil
	})
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A job whose work is done does not fail because its plugins take long to let go: the log says so, and they are killed.
func TestPluginThatIsSlowToClose(t *testing.T) {
	t.Parallel() // it waits as long as hosts do
	const size = 2
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), slowName)
	if err := os.Symlink(self, plugin); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := bootstrap.NewUniqueID(netip.MustParseAddrPort(listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	left := descriptorOf(t, listener)
	ctx := bounded(t)
	var logs [size]lines
	rank := func(r int) error {
		variables := map[string]string{"RANK": strconv.Itoa(r), "WORLD_SIZE": strconv.Itoa(size), "LOCAL_RANK": strconv.Itoa(r), bootstrap.EnvUniqueID: id.String()}
		if r == 0 {
			variables[bootstrap.EnvListenFD] = strconv.Itoa(left)
		}
		job, err := mscclpp.Init(ctx, mscclpp.WithSetting("transports", "shm"), mscclpp.WithSetting("plugins.path.shm.file", plugin),
			mscclpp.WithVariables(variables), mscclpp.WithLog(slog.New(slog.NewTextHandler(&logs[r], nil))))
		if err != nil {
			return err
		}
		if err := pass(ctx, job.World); err != nil {
			return errors.Join(err, job.Close())
		}
		return job.Close()
	}
	results := make(chan error, size)
	for r := range size {
		go func() { results <- rank(r) }()
	}
	for range size {
		if err := <-results; err != nil {
			t.Errorf("the rank failed: %v", err)
		}
	}
	for r := range logs {
		if said := logs[r].String(); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "shm close") {
			t.Errorf("rank %d logged %q: expected a warning that names the plugin", r, said)
		}
	}
}
