package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

// inheritedAddress is what a plugin calls the connection that it has inherited, in its
// handshake. It is no path, and no name of a socket.
const inheritedAddress = "inherited"

// connectionPair returns two ends of a connection: the host's, and a file for the plugin to
// inherit. Unlike a socket with a path it leaves nothing, whichever side is killed.
func connectionPair() (host net.Conn, plugin *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: connection to the plugin: %w", framework.ErrUnavailable, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "connection-host"), os.NewFile(uintptr(fds[1]), "connection-plugin")
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("%w: connection to the plugin: %w", framework.ErrUnavailable, err)
	}
	return conn, theirs, nil
}

// dialOptions let gRPC connect once. A socket with a path is removed right after, so that
// nothing can be left of it; a connection that breaks is the end of the plugin.
func (c *Client) dialOptions(address string) []grpc.DialOption {
	var dialed atomic.Bool
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if !dialed.CompareAndSwap(false, true) {
				return nil, errors.New("the plugin's connection is lost")
			}
			if c.dir != nil {
				defer c.dir.Remove()
			}
			if address == inheritedAddress {
				return c.conn, nil
			}
			c.conn.Close()
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", address)
			if err != nil {
				return nil, err
			}
			if err := samePeer(conn); err != nil {
				conn.Close()
				return nil, err
			}
			return conn, nil
		}),
		grpc.WithIdleTimeout(0), // an idle channel would have to dial again
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
	}
}

// samePeer checks that a process of this user answers.
func samePeer(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if inner != nil {
		return inner
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: the plugin's socket belongs to user %d, expected %d", framework.ErrPlugin, cred.Uid, os.Geteuid())
	}
	return nil
}
