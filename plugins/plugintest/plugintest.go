// Package plugintest puts a transport behind the process boundary without a process: everything
// that a test calls crosses a real gRPC connection and a real descriptor socket inside the test's
// own process. A transport that survives it survives plugins.Serve.
package plugintest

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

// Client is a transport behind the boundary. Like the client of a plugin it has
// every optional method.
type Client interface {
	framework.Transport
	framework.Prober
	framework.Proxier
	framework.Imager
}

// Wrap puts a transport behind the boundary until the test ends.
func Wrap(t testing.TB, transport framework.Transport) Client {
	t.Helper()
	client, stop, err := Pair(t.Context(), transport)
	if err != nil {
		t.Fatalf("put a transport behind gRPC: %v", err)
	}
	t.Cleanup(stop)
	return client
}

// Pair is Wrap for callers outside of tests. stop ends both sides.
func Pair(ctx context.Context, transport framework.Transport) (client Client, stop func(), err error) {
	p := &pair{gone: make(chan struct{})}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	ours, theirs, err := fdsock.Pair()
	if err != nil {
		return nil, nil, err
	}
	if p.host, err = fdsock.New(ours, fdsock.Host); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	if p.plugin, err = fdsock.New(theirs, fdsock.Plugin); err != nil {
		return nil, nil, err
	}
	local, remote, err := connected()
	if err != nil {
		return nil, nil, err
	}
	factory := wire.Factory{Create: func([]byte) (framework.Transport, error) { return transport, nil }}
	p.server = grpc.NewServer(wire.ServerOptions()...)
	wire.Register(p.server, wire.NewServer(factory, p.plugin))
	p.serving.Add(1)
	go func() {
		defer p.serving.Done()
		_ = p.server.Serve(&oneConn{conn: remote, closed: make(chan struct{})}) // ends by Stop
	}()
	p.conn, err = grpc.NewClient("passthrough:pair",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return local, nil }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry())
	if err != nil {
		local.Close()
		return nil, nil, err
	}
	c := wire.NewClient("wrapped", p.conn, p.host, p)
	if err := c.Configure(ctx, nil, nil); err != nil {
		return nil, nil, err
	}
	return c, p.stop, nil
}

// pair is both ends.
type pair struct {
	host, plugin *fdsock.Conn
	server       *grpc.Server
	conn         *grpc.ClientConn
	serving      sync.WaitGroup
	once         sync.Once
	gone         chan struct{}
}

// Gone implements wire.Life.
func (p *pair) Gone() <-chan struct{} { return p.gone }

// Process implements wire.Life.
func (p *pair) Process() string { return "in this process" }

// Err implements wire.Life.
func (p *pair) Err() error { return framework.ErrClosed }

func (p *pair) stop() {
	p.once.Do(func() {
		close(p.gone)
		if p.conn != nil {
			p.conn.Close()
		}
		if p.server != nil {
			p.server.Stop()
		}
		p.serving.Wait()
		for _, c := range []*fdsock.Conn{p.host, p.plugin} {
			if c != nil {
				c.Close()
			}
		}
	})
}

// connected returns two ends of a stream.
func connected() (local, remote net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	a, b := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	defer a.Close()
	defer b.Close()
	if local, err = net.FileConn(a); err != nil {
		return nil, nil, err
	}
	if remote, err = net.FileConn(b); err != nil {
		local.Close()
		return nil, nil, err
	}
	return local, remote, nil
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   net.Conn
	once   sync.Once
	mu     sync.Mutex
	taken  bool
	closed chan struct{}
}

// Accept returns the connection, then waits for Close.
func (l *oneConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	first := !l.taken
	l.taken = true
	l.mu.Unlock()
	if first {
		return l.conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close ends Accept; a connection that was never taken is closed.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken {
		l.taken = true
		return l.conn.Close()
	}
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }
