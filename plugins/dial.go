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

// dialOptions let gRPC connect once. The socket is unlinked right after, so that
// nothing can be left of it; a connection that breaks is the end of the plugin.
func (c *Client) dialOptions() []grpc.DialOption {
	var dialed atomic.Bool
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if !dialed.CompareAndSwap(false, true) {
				return nil, errors.New("the plugin's connection is lost")
			}
			defer c.dir.remove()
			_, address, _, err := parseHandshake(c.proc.handshake)
			if err != nil {
				return nil, err
			}
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
